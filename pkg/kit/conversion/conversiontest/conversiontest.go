// Package conversiontest tests the conversions of a maker.
package conversiontest

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/randfill"

	"example.com/foo-controller/pkg/kit/conversion"
)

// Fuzz converts random objects of each version to each other one and back, and fails if an object has changed. Without
// -fuzz, it takes some hundred objects:
//
//	func FuzzConversion(f *testing.F) { conversiontest.Fuzz(f, plan.Conversion) }
func Fuzz(f *testing.F, c *conversion.Conversion) {
	for seed := range 300 {
		f.Add([]byte{byte(seed), byte(seed >> 8)}, int64(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed int64) {
		for _, from := range slices.Sorted(maps.Keys(c.Empty())) {
			for _, to := range slices.Sorted(maps.Keys(c.Empty())) {
				obj := c.Empty()[from]
				filler(data, seed).Fill(obj)
				roundTrip(t, c, obj, from, to)
			}
		}
	})
}

// filler returns what fills an object with random values, except those that the API server sets.
func filler(data []byte, seed int64) *randfill.Filler {
	f := randfill.NewWithSeed(seed)
	if len(data) > 2 { // Of the fuzzer.
		f = randfill.NewFromGoFuzz(data)
	}
	return f.NilChance(0.3).NumElements(0, 3).MaxDepth(20).Funcs(
		func(meta *metav1.TypeMeta, _ randfill.Continue) { *meta = metav1.TypeMeta{} },
		func(meta *metav1.ObjectMeta, _ randfill.Continue) {
			*meta = metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c", Labels: map[string]string{"d": "e"}}
		},
		func(at *metav1.Time, c randfill.Continue) { *at = metav1.Unix(c.Int63n(1<<32), 0) },
	)
}

func roundTrip(t *testing.T, c *conversion.Conversion, obj any, from, to string) {
	t.Helper()
	kind := c.Kind()
	apiVersion := func(version string) string { return schema.GroupVersion{Group: kind.Group, Version: version}.String() }
	original := decoded(t, encoded(t, obj))
	original["apiVersion"], original["kind"] = apiVersion(from), kind.Kind
	stored := encoded(t, original)
	there, err := c.Convert(stored, apiVersion(to))
	if err != nil {
		t.Fatalf("%s to %s: %v, of\n%s", from, to, err, stored)
	}
	back, err := c.Convert(there, apiVersion(from))
	if err != nil {
		t.Fatalf("%s to %s and back: %v, of\n%s\nwhich was\n%s", from, to, err, there, stored)
	}
	before, after := decoded(t, stored), decoded(t, back)
	delete(before, "status") // The controller makes it again.
	delete(after, "status")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s to %s and back (-before +after):\n%s\nin between:\n%s", from, to, diff, there)
	}
}

func encoded(t *testing.T, obj any) []byte {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func decoded(t *testing.T, text []byte) (tree map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	return tree
}
