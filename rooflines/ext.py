"""Everything that an extension imports besides ``rooflines`` itself; docs/extending.md has one of each kind.

Names load on first use. The studies (``rooflines_studies``) are made of nothing else.

===============  ========================================================================================
samplers         ``DeviceSample``, ``Field``, ``Sampler``, ``now_ns``
formulas         ``CallCount``, ``Signature``, ``TensorArg``, ``count_call``, ``count_network``;
                 ``rooflines.formula``, ``Work`` and ``NotCounted``
recommendations  ``Advice``, ``Case``
pages            ``ABSENT``, ``Bar``, ``BarRow``, ``Block``, ``Cell``, ``CellValue``, ``Column``,
                 ``Facts``, ``Figure``, ``Findings``, ``Numbers``, ``Page``, ``Paragraph``, ``Part``,
                 ``Row``, ``Section``, ``Show``, ``Table``, ``Words``, ``division_table``,
                 ``operator_table``, ``or_absent``, ``rate_lines``, ``roofline_warning``, ``section``,
                 ``sections_of``, ``steps_table``, ``table``, ``texts``, ``timeline_figure``,
                 ``usage_table``, ``usage_timeline``, ``value_of``, ``write``
figures          ``Beam``, ``Beams``, ``CurveSeries``, ``Curves``, ``RooflineChart``, ``RooflinePoint``,
                 ``SERIES_COLORS``, ``category_color``, ``roofline_drawing``
numbers          ``binary_bytes``, ``counted``, ``grouped``, ``longest_first``, ``percent``,
                 ``quantity``, ``seconds``, ``si``, ``significant``
commands         ``CEILINGS_HELP``, ``HOW_GROUP``, ``MEASURE_GROUP``, ``OptionValue``, ``PAGE_FORMATS``,
                 ``PointOptions``, ``QuietOption``, ``ReportsOption``, ``WHAT_GROUP``, ``arg``,
                 ``option``, ``output_directory``, ``parse_formats``, ``print_report``, ``progress_bar``
errors           ``DataError``, ``DeviceError``, ``Interrupted``, ``UsageError``
runs, files      ``ANALYSIS_FILE``, ``Progress``, ``VariantResult``, ``ceilings_of_device``,
                 ``create_directory``, ``default_command``, ``default_directory``, ``file_or_device``,
                 ``load_training``, ``read_json``, ``write_json``, ``write_reports``, ``write_text``
sweeps           ``Curve``, ``MeasuredValue``, ``PointResult``, ``RUN_FOLDER``, ``SweepPoint``,
                 ``SweepRow``, ``Tuning``, ``WorkerChannel``, ``ceilings_of_rows``,
                 ``crossed_options``, ``curves_section``, ``load_sweep``, ``load_tuning``,
                 ``make_points``, ``parse_values``, ``point_grid``, ``points_table``, ``run_sweep``,
                 ``search_points``, ``sweep_roofline``, ``sweep_rows``, ``sweep_sentences``,
                 ``swept_options``, ``write_sweep_table``
devices          ``Bound``, ``Ceiling``, ``OTHERS_CORES``, ``OthersMeter``, ``Source``, ``device_name``,
                 ``place_on_roofline``
data sets        ``find_dataset``, ``held_out_digits``, ``read_images``
kernels          ``BYTE_TYPE``, ``CUDA_IS_SIMULATED``, ``VectorCode``, ``aligned_array``,
                 ``compiled_cuda``, ``compiled_vectors``, ``configured_cuda``, ``cuda_launcher``,
                 ``emitted_vectors``, ``recur_fma``, ``synchronize_device``, ``tf32_state``,
                 ``timed_on_device``, ``vector_bytes``
===============  ========================================================================================
"""

from __future__ import annotations

from rooflines.lazy import stubbed

__getattr__, __all__, __dir__ = stubbed(__name__, __file__)
