package plan_test

import (
	"example.com/foo-controller/pkg/plan"
)

const overriddenMessage = `Something else keeps changing Deployment "web-1": spec.replicas to 5 where this Foo says 3. ` +
	`Remove what it sets from this Foo, or stop it: an autoscaler, an admission policy or another controller`

// overriddenReplicas is what is remembered of a patch that came to nothing.
var overriddenReplicas = plan.ConditionError{Reason: "FieldsOverridden", Message: overriddenMessage}
