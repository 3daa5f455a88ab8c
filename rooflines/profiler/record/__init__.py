"""Recording a program: its passes, the trace, its steps and its data loading."""
