package plan_test

const (
	nameTaken = `Deployment "web-1" belongs to Foo "api", which names it too and had it first. Set another ` +
		"spec.deploymentName here, or change or delete that Foo"
	ownerGone = `Deployment "web-1" belongs to a Foo "api" that is gone, and its name is free when the garbage collector ` +
		"has removed it"
)
