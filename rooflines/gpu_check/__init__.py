"""The check that runs everything that needs an NVIDIA GPU: ``make gpu-check`` and ``rooflines doctor --gpu``.

``check`` runs the parts that ``parts`` lists, in order, each in a process of its own with a time limit (``process``, ``worker``). A
part writes what it measured at once (``recorder``), and ``laws`` judges the recorded data.
"""
