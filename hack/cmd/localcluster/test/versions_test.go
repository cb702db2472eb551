package localcluster_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The rules of the schema compile in the oldest version of Kubernetes that install.md names and deploy.sh demands, and
// not in the one before. An API server accepts in a new rule only the functions that the version before it has, so that
// it can be downgraded.
func TestTheOldestVersionOfKubernetesIsTheOneThatIsDocumented(t *testing.T) {
	for file, text := range map[string]string{
		"../../../../docs/install.md": "\n1.32 and newer. ", "../../../deploy.sh": ">= 32))",
	} {
		if content, err := os.ReadFile(file); err != nil || !strings.Contains(string(content), text) {
			t.Errorf("%s does not have %q: %v", file, text, err)
		}
	}
	if problems := compile(t, "1.31"); len(problems) > 0 {
		t.Errorf("Kubernetes 1.32 refuses the CustomResourceDefinition:\n%s", strings.Join(problems, "\n"))
	}
	if problems := compile(t, "1.30"); len(problems) == 0 {
		t.Error("Kubernetes 1.31 accepts the CustomResourceDefinition, too: name it")
	}
}

// compile compiles the rules of the schema with the functions of a version of Kubernetes, and returns what it refuses.
func compile(t *testing.T, functionsOf string) (problems []string) {
	t.Helper()
	set, err := environment.MustBaseEnvSet(version.MustParse(functionsOf)).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("self", cel.DynType), cel.Variable("oldSelf", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := set.Env(environment.NewExpressions)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../../artifacts/crd/samplecontroller.k8s.io_foos.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if want := len(regexp.MustCompile(`(?m)^ *(- )?rule: `).FindAll(text, -1)); len(rules) != want {
		t.Fatalf("%d rules, but the file has %d", len(rules), want)
	}
	for _, rule := range rules {
		if _, issues := env.Compile(rule); issues.Err() != nil {
			problems = append(problems, issues.Err().Error())
		}
	}
	return problems
}

// rulesOf returns the rules of a schema and of all schemas in it.
func rulesOf(schema *apiextensionsv1.JSONSchemaProps) (rules []string) {
	for _, validation := range schema.XValidations {
		rules = append(rules, validation.Rule)
	}
	for _, property := range schema.Properties {
		rules = append(rules, rulesOf(&property)...)
	}
	if schema.Items != nil {
		rules = append(rules, rulesOf(schema.Items.Schema)...)
	}
	return rules
}
