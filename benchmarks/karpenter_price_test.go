//go:build test_performance

// Copied beside Karpenter's own benchmark by karpenter.py, to tell what that benchmark does not print: the price of
// the nodes Karpenter chose, and the least that any choice could cost. Ours; nothing of Karpenter's is kept here.
package scheduling_test

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
)

// What the first solve answered; set by the one line that karpenter.py adds inside the timed loop.
var firstResults scheduling.Results

// Runs after the clock has been read, so it costs the measured speed nothing.
func reportPrice(b *testing.B, pods []*corev1.Pod) {
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
	b.ReportMetric(volumetricBound(pods, cloudProvider.InstanceTypes), "bound")
}

// The dearest resource alone, bought by the fraction at the best price per unit that any type offers.
func volumetricBound(pods []*corev1.Pod, types []*cloudprovider.InstanceType) float64 {
	bound := 0.0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		asked := 0.0
		for _, pod := range pods {
			for _, container := range pod.Spec.Containers {
				asked += container.Resources.Requests.Name(name, "").AsApproximateFloat64()
			}
		}
		perUnit := math.Inf(1)
		for _, instanceType := range types {
			allocatable := instanceType.Allocatable()
			perUnit = math.Min(perUnit, instanceType.Offerings.Cheapest().Price/allocatable.Name(name, "").AsApproximateFloat64())
		}
		bound = math.Max(bound, asked*perUnit)
	}
	return bound
}
