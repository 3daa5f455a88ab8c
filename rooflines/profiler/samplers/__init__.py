"""What the machine did during a run: utilization, memory, power, temperature and clocks, read beside it in a process of their own."""
