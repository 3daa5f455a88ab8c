"""The names of ``rooflines.pipeline``, each with its home."""

from rooflines.pipeline.calibrating import calibrate as calibrate
from rooflines.pipeline.command import default_command as default_command
from rooflines.pipeline.comparing import check as check
from rooflines.pipeline.comparing import check_baselines as check_baselines
from rooflines.pipeline.comparing import compare as compare
from rooflines.pipeline.comparing import compare_all as compare_all
from rooflines.pipeline.comparing import update_baseline as update_baseline
from rooflines.pipeline.monitoring import attach as attach
from rooflines.pipeline.monitoring import monitor as monitor
from rooflines.pipeline.options import FORMATS as FORMATS
from rooflines.pipeline.options import ProfileOptions as ProfileOptions
from rooflines.pipeline.predicting import predict as predict
from rooflines.pipeline.reading import analyze as analyze
from rooflines.pipeline.reading import analyze_ranks as analyze_ranks
from rooflines.pipeline.reading import analyze_source as analyze_source
from rooflines.pipeline.recording import profile as profile
from rooflines.pipeline.recording import profile_script as profile_script
from rooflines.pipeline.recording import record as record
from rooflines.pipeline.reporting import ANALYSIS_FILE as ANALYSIS_FILE
from rooflines.pipeline.reporting import RANKS_FILE as RANKS_FILE
from rooflines.pipeline.reporting import report as report
from rooflines.pipeline.reporting import write_reports as write_reports
from rooflines.pipeline.sources import open_source as open_source
from rooflines.pipeline.training import train as train
from rooflines.pipeline.what_if import what_if as what_if
