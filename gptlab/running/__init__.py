"""Do it: one run at a time into its folder, by this process, by workers or by a cluster."""
