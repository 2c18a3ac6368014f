package pid1

func initMain(argv []string) int { return 0 }
