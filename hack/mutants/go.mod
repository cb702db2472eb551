module example.com/foo-controller/hack/mutants

go 1.26.0

require (
	example.com/foo-controller v0.0.0
	github.com/google/go-cmp v0.7.0
)

replace example.com/foo-controller => ../..
