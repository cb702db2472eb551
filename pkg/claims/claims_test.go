package claims_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/claims"
)

// byAge is the order of the tests: the older Foo first, or the one whose name comes first.
func byAge(a, b *v1alpha1.Foo) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// all is for Foos that all claim what they name.
func all(*v1alpha1.Foo) bool { return true }

// concerned returns those of before and after that exist.
func concerned(before, after *v1alpha1.Foo) (foos []*v1alpha1.Foo) {
	for _, foo := range []*v1alpha1.Foo{before, after} {
		if foo != nil {
			foos = append(foos, foo)
		}
	}
	return foos
}

func newFoo(name, deployment string, second int64) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	foo.CreationTimestamp = metav1.Unix(second, 0)
	foo.Spec.DeploymentName = deployment
	return foo
}

func nameOf(foo *v1alpha1.Foo) string {
	if foo == nil {
		return ""
	}
	return foo.Name
}

func key(name string) cache.ObjectName { return cache.NewObjectName("default", name) }

func TestFirstIsTheOldestClaim(t *testing.T) {
	index := claims.New(all, byAge)
	steps := []struct {
		name    string
		do      func() []claims.Change
		first   string
		changed []string
	}{
		{name: "no claim", do: func() []claims.Change { return nil }},
		{
			name: "the first claim", first: "b", changed: []string{"shared"},
			do: func() []claims.Change { return index.Update(newFoo("b", "shared", 2)) },
		},
		{
			name: "a younger one", first: "b",
			do: func() []claims.Change { return index.Update(newFoo("c", "shared", 3)) },
		},
		{
			name: "one as old, with an earlier name", first: "a", changed: []string{"shared"},
			do: func() []claims.Change { return index.Update(newFoo("a", "shared", 2)) },
		},
		{
			name: "a new version of the first", first: "a",
			do: func() []claims.Change { return index.Update(newFoo("a", "shared", 2)) },
		},
		{
			name: "another Foo of the same name, which is younger", first: "b", changed: []string{"shared"},
			do: func() []claims.Change { return index.Update(newFoo("a", "shared", 9)) },
		},
		{
			name: "the first moves to another name", first: "c", changed: []string{"other", "shared"},
			do: func() []claims.Change { return index.Update(newFoo("b", "other", 2)) },
		},
		{
			name: "the last one is deleted", first: "c",
			do: func() []claims.Change { return index.Delete(key("a")) },
		},
		{
			name: "an unknown one is deleted", first: "c",
			do: func() []claims.Change { return index.Delete(key("unknown")) },
		},
		{
			name: "the first is deleted, and none is left", changed: []string{"shared"},
			do: func() []claims.Change { return index.Delete(key("c")) },
		},
	}
	for _, step := range steps {
		var changed []string
		first := map[cache.ObjectName]*v1alpha1.Foo{}
		for _, name := range []string{"shared", "other"} {
			first[key(name)] = index.First(key(name))
		}
		for _, change := range step.do() {
			changed = append(changed, change.Deployment.Name)
			if diff := gocmp.Diff(concerned(first[change.Deployment], index.First(change.Deployment)), change.Foos); diff != "" {
				t.Errorf("%s: the Foos of the change (-want +got):\n%s", step.name, diff)
			}
		}
		slices.Sort(changed)
		if diff := gocmp.Diff(step.changed, changed); diff != "" {
			t.Errorf("%s: other first claims (-want +got):\n%s", step.name, diff)
		}
		if got := nameOf(index.First(key("shared"))); got != step.first {
			t.Errorf("%s: the first is %q, want %q", step.name, got, step.first)
		}
	}
}

// The cache drops an old version of a Foo. So must the index.
func TestTheIndexKeepsNoFoo(t *testing.T) {
	index := claims.New(all, byAge)
	foo := newFoo("a", "shared", 1)
	index.Update(foo)
	first := index.First(key("shared"))
	if first == foo || first.Namespace != "default" || !first.CreationTimestamp.Equal(&foo.CreationTimestamp) {
		t.Errorf("got %+v, want only the identity of the Foo", first)
	}
}

func TestNamespacesAreApart(t *testing.T) {
	index := claims.New(all, byAge)
	index.Update(newFoo("a", "shared", 1))
	if got := index.First(cache.NewObjectName("other", "shared")); got != nil {
		t.Errorf("Foo %q is the first of another namespace", got.Name)
	}
}

func TestAFooThatNoLongerClaimsItsDeploymentIsNotFirst(t *testing.T) {
	index := claims.New(func(foo *v1alpha1.Foo) bool { return !foo.Spec.Paused }, byAge)
	index.Update(newFoo("a", "shared", 1))
	index.Update(newFoo("b", "shared", 2))
	paused := newFoo("a", "shared", 1)
	paused.Spec.Paused = true
	index.Update(paused)
	if got := nameOf(index.First(key("shared"))); got != "b" {
		t.Errorf("the first is %q, want b", got)
	}
}

// TestIndexAgreesWithAScan compares random changes with a scan of all Foos.
func TestIndexAgreesWithAScan(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	index, foos := claims.New(all, byAge), map[string]*v1alpha1.Foo{}
	deployments := []string{"one", "two", "three"}
	scan := func(deployment string) *v1alpha1.Foo {
		var first *v1alpha1.Foo
		for _, foo := range foos {
			if foo.Spec.DeploymentName == deployment && (first == nil || byAge(foo, first) < 0) {
				first = foo
			}
		}
		return first
	}
	for i := range 20_000 {
		before := map[string]string{}
		for _, deployment := range deployments {
			before[deployment] = nameOf(scan(deployment))
		}
		name := fmt.Sprint("foo-", random.IntN(30))
		var reported []claims.Change
		if random.IntN(3) == 0 {
			delete(foos, name)
			reported = index.Delete(key(name))
		} else {
			foos[name] = newFoo(name, deployments[random.IntN(3)], random.Int64N(10))
			reported = index.Update(foos[name])
		}
		for _, deployment := range deployments {
			want := scan(deployment)
			if got := index.First(key(deployment)); nameOf(got) != nameOf(want) {
				t.Fatalf("change %d: the first of %s is %q, want %q", i, deployment, nameOf(got), nameOf(want))
			}
			changed := slices.ContainsFunc(reported, func(c claims.Change) bool { return c.Deployment == key(deployment) })
			if changed != (before[deployment] != nameOf(want)) {
				t.Fatalf("change %d: %s went from %q to %q, reported: %t", i, deployment, before[deployment], nameOf(want),
					changed)
			}
		}
	}
}

// TestAClaimCostsTheLogarithmOfTheirNumber counts comparisons.
func TestAClaimCostsTheLogarithmOfTheirNumber(t *testing.T) {
	const n = 4096 // 2^12
	compared := 0
	index := claims.New(all, func(a, b *v1alpha1.Foo) int {
		compared++
		return byAge(a, b)
	})
	for i := range n {
		index.Update(newFoo(fmt.Sprint("foo-", i), "shared", int64(n-i))) // Each comes before all others.
	}
	for i := range n {
		index.First(key("shared"))
		index.Delete(key(fmt.Sprint("foo-", n-1-i)))
	}
	if most := n * 12 * 4; compared > most {
		t.Errorf("%d comparisons for %d claims that come and go, want at most %d", compared, n, most)
	}
}

func BenchmarkUpdate(b *testing.B) {
	index := claims.New(all, byAge)
	began := time.Now().Unix()
	for i := 0; b.Loop(); i++ {
		index.Update(newFoo(fmt.Sprint("foo-", i%10_000), "shared", began+int64(i)))
	}
}
