//go:build test_performance

// Copied beside Karpenter's own benchmark by karpenter.py, to tell what that benchmark does not print: the price of
// the nodes Karpenter chose. Ours; nothing of Karpenter's is kept here.
package scheduling_test

import (
	"math"
	"testing"

	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
)

// What the first solve answered; set by the one line that karpenter.py adds inside the timed loop.
var firstResults scheduling.Results

// Runs after the clock has been read, so it costs the measured speed nothing.
func reportPrice(b *testing.B) {
	price := 0.0
	for _, claim := range firstResults.NewNodeClaims {
		// A claim still lists every type that fits; Karpenter would launch one of the cheapest. Take the cheapest.
		cheapest := math.Inf(1)
		for _, instanceType := range claim.InstanceTypeOptions {
			for _, offering := range instanceType.Offerings.Available().Compatible(claim.Requirements) {
				cheapest = math.Min(cheapest, offering.Price)
			}
		}
		price += cheapest
	}
	b.ReportMetric(price, "price")
}
