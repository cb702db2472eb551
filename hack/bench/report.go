package main
func (b *bench) report(tasks []task) error { return nil }
func percentile(sorted []float64, p int) float64 {
	if len(sorted) == 0 { return 0 }
	return sorted[(len(sorted)*p+99)/100-1]
}
