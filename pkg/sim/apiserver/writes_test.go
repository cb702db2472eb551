package apiserver_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/sim/apiserver"
)

const (
	aConfigMap  = `POST configmaps {"metadata":{"name":"a"},"data":{"k":"v"}}`
	aDeployment = `POST deployments {"metadata":{"name":"web"},"spec":{"replicas":2}}`
	aWidget     = `POST widgets {$widget,"metadata":{"name":"w"},"spec":{"color":"red","size":1}}`
	anObjectMod = "the object has been modified; please apply your changes to the latest version and try again"
)

var writes = []struct {
	name  string
	given []string
	when  string
	want  string
}{
	// Create.
	{
		name: "a new object has generation 0 when its kind has none",
		when: `POST configmaps {"metadata":{"name":"a"}}`, want: "201",
	},
	{
		name:  "a name is taken",
		given: []string{aConfigMap}, when: aConfigMap,
		want: `409 AlreadyExists: configmaps "a" already exists`,
	},
	{
		name:  "a name is taken although the object has a generateName",
		given: []string{aConfigMap}, when: `POST configmaps {"metadata":{"name":"a","generateName":"a"}}`,
		want: `409 AlreadyExists: configmaps "a" already exists, the server was not able to generate a unique name ` +
			`for the object`,
	},
	{
		name:  "a name is taken by an object that is being deleted",
		given: []string{`POST configmaps {"metadata":{"name":"a","finalizers":["x/y"]}}`, `DELETE configmaps/a`},
		when:  aConfigMap,
		want:  `409 AlreadyExists: object is being deleted: configmaps "a" already exists`,
	},
	{
		name: "a bad name", when: `POST configmaps {"metadata":{"name":"A"}}`,
		want: `422 Invalid: ConfigMap "A" is invalid: metadata.name: Invalid value: "A": a lowercase RFC 1123 ` +
			`subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with ` +
			`an alphanumeric character (e.g. 'example.com', regex used for validation is ` +
			`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')` +
			"\nFieldValueInvalid metadata.name",
	},
	{
		name: "no name at all", when: `POST configmaps {}`,
		want: "422 Invalid: ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is " +
			"required\nFieldValueRequired metadata.name",
	},
	{
		name: "another namespace than the path's",
		when: `POST configmaps {"metadata":{"name":"a","namespace":"other"}}`,
		want: "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request",
	},
	{
		name: "a new object with a version",
		when: `POST configmaps {"metadata":{"name":"a","resourceVersion":"5"}}`,
		want: "500 <nil>: resourceVersion should not be set on objects to be created",
	},
	{
		name: "a body that is no object", when: `POST configmaps nonsense`,
		want: "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): couldn't get " +
			"version/kind; json parse error: invalid character 'o' in literal null (expecting 'u') (6e6f6e73656e7365)",
	},
	{
		name: "another version of the API",
		when: `POST deployments {"apiVersion":"apps/v2","kind":"Deployment","metadata":{"name":"web"}}`,
		want: `400 BadRequest: Deployment in version "v2" cannot be handled as a Deployment: no kind "Deployment" is ` +
			`registered for version "apps/v2"`,
	},
	{
		name: "a built-in kind's value of a wrong type",
		when: `POST deployments {"metadata":{"name":"web"},"spec":{"replicas":"2"}}`,
		want: `400 BadRequest: Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal ` +
			`string into ` +
			`Go struct field DeploymentSpec.spec.replicas of type int32`,
	},
	{
		name: "a custom kind's value of a wrong type",
		when: `POST widgets {$widget,"metadata":{"name":"w"},"spec":{"size":"2"}}`,
		want: "422 Invalid: Widget.example.com \"w\" is invalid: spec.size: Invalid value: \"string\": spec.size in " +
			"body must " +
			"be of type integer: \"string\"\nFieldValueTypeInvalid spec.size",
	},
	{
		name: "another custom kind's value of a wrong type",
		when: `POST widgets {$widget,"metadata":{"name":"w"},"spec":{"color":[]}}`,
		want: "422 Invalid: Widget.example.com \"w\" is invalid: spec.color: Invalid value: \"array\": spec.color in " +
			"body must " +
			"be of type string: \"array\"\nFieldValueTypeInvalid spec.color",
	},
	{
		name: "a custom kind's list with a value that is no list",
		when: `POST widgets {$widget,"metadata":{"name":"w","finalizers":true}}`,
		want: "422 Invalid: Widget.example.com \"w\" is invalid: metadata.finalizers: Invalid value: \"bool\": " +
			"metadata.finalizers in " +
			"body must be of type array: \"bool\"\nFieldValueTypeInvalid metadata.finalizers",
	},
	{
		name: "an empty body", when: `POST configmaps`,
		want: "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): couldn't get " +
			"version/kind; json parse error: unexpected end of JSON input (<empty>)",
	},
	{
		name: "a list", when: `POST configmaps ["a list that is much too long to be quoted here"]`,
		want: "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): couldn't get " +
			"version/kind; json parse " +
			"error: json: cannot unmarshal array into Go value of type struct { APIVersion string " +
			"\"json:\\\"apiVersion,omitempty\\\"\"; Kind " +
			"string \"json:\\\"kind,omitempty\\\"\" } (5b2261206c6973742074686174206973206d75636820746f6f206c6f6e67 ...)",
	},
	{
		name: "an unknown content type", when: `TEXT configmaps {}`,
		want: "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types " +
			"include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
	},
	{
		name: "YAML", when: "YAML configmaps metadata: {name: a}", want: "201",
	},
	{
		name: "unknown fields, with strict validation",
		when: `POST configmaps?fieldValidation=Strict {"metadata":{"name":"a"},"dat":{}}`,
		want: `400 BadRequest: ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: ` +
			`unknown field "dat"`,
	},
	{
		name: "a dry run", when: `POST configmaps?dryRun=All {"metadata":{"name":"a"}}`, want: "201",
	},
	{
		name: "an unknown kind of dry run", when: `POST configmaps?dryRun=Some {"metadata":{"name":"a"}}`,
		want: "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: " +
			"supported values: \"All\"\nFieldValueNotSupported dryRun",
	},

	// Metadata of unstructured objects.
	{
		name: "a label that is no string", when: `POST gadgets {$gadget,"metadata":{"name":"g","labels":{"a":1}}}`,
		want: `400 BadRequest: Gadget in version "v1" cannot be handled as a Gadget: json: cannot unmarshal number into ` +
			`Go struct field ObjectMeta.labels of type string`,
	},
	{
		name: "a label that is no string, in another version",
		when: `POST gadgets {"apiVersion":"other/v9","kind":"Gadget","metadata":{"name":"g","labels":{"a":1}}}`,
		want: `400 BadRequest: Gadget in version "v9" cannot be handled as a Gadget: json: cannot unmarshal number into ` +
			`Go struct field ObjectMeta.labels of type string`,
	},
	{
		name: "a time that is none, in another version",
		when: `POST gadgets {"apiVersion":"other/v9","kind":"Gadget","metadata":{"name":"g","creationTimestamp":"x"}}`,
		want: `400 BadRequest: Gadget in version "v9" cannot be handled as a Gadget: parsing time "x" as ` +
			`"2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"`,
	},
	{
		name: "metadata that is no object", when: `POST gadgets {$gadget,"metadata":"g"}`,
		want: `400 BadRequest: Gadget in version "v1" cannot be handled as a Gadget: json: cannot unmarshal string into ` +
			`Go value of type v1.ObjectMeta`,
	},
	{
		name: "unknown metadata, strictly",
		when: `POST gadgets?fieldValidation=Strict {$gadget,"metadata":{"name":"g","unknown":1}}`,
		want: `400 BadRequest: Gadget in version "v1" cannot be handled as a Gadget: strict decoding error: unknown field ` +
			`"metadata.unknown"`,
	},
	{
		name:  "unknown metadata is dropped",
		given: []string{`POST gadgets {$gadget,"metadata":{"name":"g"}}`},
		when:  `MERGE gadgets/g {"metadata":{"unknown":1}}`, want: "200 unchanged",
	},
	{
		name:  "a patch with finalizers that are no strings",
		given: []string{`POST gadgets {$gadget,"metadata":{"name":"g"}}`},
		when:  `JSONPATCH gadgets/g [{"op":"remove","path":"/metadata"},{"op":"add","path":"/metadata","value":"g"}]`,
		want: `422 Invalid:  "" is invalid: patch: Invalid value: "{\"apiVersion\":\"example.com/v1\",\"kind\":` +
			`\"Gadget\",\"metadata\":\"g\"}": json: cannot unmarshal string into Go value of type v1.ObjectMeta` +
			"\nFieldValueInvalid patch",
	},
	{
		name:  "a patch of the kind of an unstructured object",
		given: []string{`POST gadgets {$gadget,"metadata":{"name":"g"}}`},
		when:  `MERGE gadgets/g {"kind":"Other"}`,
		want: `422 Invalid: Other.example.com "g" is invalid: kind: Invalid value: "Other": must be Gadget` +
			"\nFieldValueInvalid kind",
	},

	// The fields of a scale, and what only a few kinds have.
	{
		name:  "a negative scale of a custom resource",
		given: []string{aWidget},
		when: `PUT widgets/w/scale {"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"w"},` +
			`"spec":{"replicas":-1}}`,
		want: `422 Invalid: Widget.example.com "w" is invalid: .spec.size: Invalid value: -1: should be a non-negative ` +
			"integer\nFieldValueInvalid .spec.size",
	},
	{
		name:  "Jobs orphan their dependents without a policy",
		given: []string{`POST jobs {"metadata":{"name":"j"}}`},
		when:  `DELETE jobs/j`, want: "200 written generation 2 deleting orphan",
	},
	{
		name:  "alpha fields of a Lease are dropped",
		given: []string{`POST leases {"metadata":{"name":"l"}}`},
		when:  `MERGE leases/l {"spec":{"strategy":"x","preferredHolder":"y"}}`, want: "200 unchanged",
	},
	{
		name: "options for another kind", when: `DELETE configmaps/a {"kind":"Foo","apiVersion":"v1"}`,
		want: `400 BadRequest: no kind "Foo" is registered for version "v1"`,
	},
	{
		name: "YAML that begins with a brace", when: `YAML configmaps {metadata: {name: a}}`,
		want: "201",
	},
	{
		name: "a watch of one object is a get", given: []string{aConfigMap}, when: `GET configmaps/a?watch=1`,
		want: "200 unchanged",
	},

	// Update.
	{
		name: "an update of an object that does not exist", when: `PUT configmaps/a {"metadata":{"name":"a"}}`,
		want: `404 NotFound: configmaps "a" not found`,
	},
	{
		name:  "an update without a version",
		given: []string{aConfigMap}, when: `PUT configmaps/a {"metadata":{"name":"a"}}`,
		want: "200 written generation 0",
	},
	{
		name:  "an update that changes nothing",
		given: []string{aConfigMap}, when: `PUT configmaps/a {"metadata":{"name":"a"},"data":{"k":"v"}}`,
		want: "200 unchanged",
	},
	{
		name:  "an update of a custom kind without a version",
		given: []string{aWidget}, when: `PUT widgets/w {$widget,"metadata":{"name":"w"},"spec":{"color":"red"}}`,
		want: "422 Invalid: widgets.example.com \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must " +
			"be specified for an update\nFieldValueInvalid metadata.resourceVersion",
	},
	{
		name:  "an update of an old version",
		given: []string{aConfigMap}, when: `PUT configmaps/a {"metadata":{"name":"a","resourceVersion":"1"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on configmaps "a": ` + anObjectMod,
	},
	{
		name:  "an update with a malformed version",
		given: []string{aConfigMap}, when: `PUT configmaps/a {"metadata":{"name":"a","resourceVersion":"x"}}`,
		want: `500 <nil>: strconv.ParseUint: parsing "x": invalid syntax`,
	},
	{
		name:  "an update with the uid of another object",
		given: []string{aConfigMap}, when: `PUT configmaps/a {"metadata":{"name":"a","uid":"x"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, ` +
			`Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID ` +
			`in precondition: x, UID in object meta: 370cabd5-0000-4000-8000-000000000002`,
	},
	{
		name:  "an update under another name",
		given: []string{aConfigMap}, when: `PUT configmaps/a {"metadata":{"name":"b"}}`,
		want: "400 BadRequest: the name of the object (b) does not match the name on the URL (a)",
	},
	{
		name:  "an update without a name",
		given: []string{aConfigMap}, when: `PUT configmaps/a {}`,
		want: "400 BadRequest: the name of the object (a based on URL) was undeterminable: name must be provided",
	},
	{
		name:  "an update of the spec is a new generation",
		given: []string{aDeployment}, when: `PUT deployments/web {"metadata":{"name":"web"},"spec":{"replicas":3}}`,
		want: "200 written generation 2",
	},
	{
		name:  "an update of labels is no new generation",
		given: []string{aDeployment},
		when:  `PUT deployments/web {"metadata":{"name":"web","labels":{"a":"b"}},"spec":{"replicas":2}}`,
		want:  "200 written generation 1",
	},
	{
		name:  "an update does not change the status",
		given: []string{aDeployment},
		when:  `PUT deployments/web {"metadata":{"name":"web"},"spec":{"replicas":2},"status":{"replicas":7}}`,
		want:  "200 unchanged",
	},
	{
		name:  "an update of the status does not change the spec",
		given: []string{aDeployment},
		when:  `PUT deployments/web/status {"metadata":{"name":"web"},"spec":{"replicas":9},"status":{"replicas":7}}`,
		want:  "200 written generation 1",
	},
	{
		name:  "an update of a custom kind's status does not change the metadata",
		given: []string{aWidget, `MERGE widgets/w {}`},
		when: `PUT widgets/w/status {$widget,"metadata":{"name":"w","resourceVersion":"$version","labels":{"a":"b"}},` +
			`"status":{"phase":"Pending"}}`,
		want: "200 unchanged",
	},
	{
		name:  "an update that the kind refuses",
		given: []string{aWidget},
		when:  `PUT widgets/w {$widget,"metadata":{"name":"w","resourceVersion":"$version"},"spec":{"color":"blue"}}`,
		want: "422 Invalid: Widget.example.com \"w\" is invalid: spec.color: Forbidden: red stays " +
			"red\nFieldValueForbidden spec.color",
	},
	{
		name: "a PUT creates a Lease", when: `PUT leases/l {"metadata":{"name":"l"}}`, want: "201 new generation 0",
	},
	{
		name: "a PUT of a Lease with the uid of another object", when: `PUT leases/l {"metadata":{"name":"l","uid":"x"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on leases.coordination.k8s.io "l": StorageError: invalid ` +
			`object, Code: 4, ` +
			`Key: /registry/leases/default/l, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in ` +
			`precondition: x, ` +
			`UID in object meta: `,
	},
	{
		name: "a PUT of a Lease with a malformed version",
		when: `PUT leases/l {"metadata":{"name":"l","resourceVersion":"x"}}`,
		want: `500 <nil>: strconv.ParseUint: parsing "x": invalid syntax`,
	},
	{
		name:  "a PUT without a version does not overwrite a Lease",
		given: []string{`POST leases {"metadata":{"name":"l"}}`}, when: `PUT leases/l {"metadata":{"name":"l"}}`,
		want: "422 Invalid: leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: " +
			"must be specified " +
			"for an update\nFieldValueInvalid metadata.resourceVersion",
	},
	{
		name:  "an unstructured kind",
		given: []string{`POST gadgets {$gadget,"metadata":{"name":"g"},"a":{"b":1}}`},
		when:  `MERGE gadgets/g {"a":{"b":2}}`, want: "200 written generation 2",
	},
	{
		name:  "an unstructured kind's status",
		given: []string{`POST gadgets {$gadget,"metadata":{"name":"g"},"status":{"b":1}}`},
		when:  `MERGE gadgets/g/status {"a":{"b":2},"status":{"b":2}}`, want: "200 written generation 1",
	},

	{
		name:  "the first write to a custom object stores the defaults of its status",
		given: []string{aWidget}, when: `MERGE widgets/w {}`, want: "200 written generation 1",
	},

	// Patch.
	{
		name: "a patch of an object that does not exist", when: `MERGE configmaps/a {}`,
		want: `404 NotFound: configmaps "a" not found`,
	},
	{
		name:  "a patch that changes nothing",
		given: []string{aConfigMap}, when: `MERGE configmaps/a {"data":{"k":"v"}}`, want: "200 unchanged",
	},
	{
		name:  "a strategic patch",
		given: []string{aDeployment},
		when: `STRATEGIC deployments/web {"metadata":{"uid":"$uid","resourceVersion":"$version"},` +
			`"spec":{"replicas":3}}`,
		want: "200 written generation 2",
	},
	{
		name:  "a patch of an old version",
		given: []string{aDeployment}, when: `STRATEGIC deployments/web {"metadata":{"resourceVersion":"1"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on deployments.apps "web": ` + anObjectMod,
	},
	{
		name:  "a patch with the uid of another object",
		given: []string{aDeployment}, when: `STRATEGIC deployments/web {"metadata":{"uid":"x"}}`,
		want: `422 Invalid: Deployment.apps "web" is invalid: metadata.uid: Invalid value: "x": field is immutable` +
			"\nFieldValueInvalid metadata.uid",
	},
	{
		name:  "a strategic patch of a custom kind",
		given: []string{aWidget}, when: `STRATEGIC widgets/w {}`,
		want: "415 UnsupportedMediaType: the body of the request was in an unknown format - accepted media types " +
			"include: application/json-patch+json, application/merge-patch+json",
	},
	{
		name:  "server-side apply",
		given: []string{aConfigMap}, when: `APPLY configmaps/a?fieldManager=x {}`,
		want: "415 UnsupportedMediaType: the simulated API server has no server-side apply: use client-side apply",
	},
	{
		name:  "a JSON patch",
		given: []string{aConfigMap},
		when:  `JSONPATCH configmaps/a [{"op":"test","path":"/data/k","value":"v"},{"op":"remove","path":"/data"}]`,
		want:  "200 written generation 0",
	},
	{
		name:  "a JSON patch whose test fails",
		given: []string{aConfigMap}, when: `JSONPATCH configmaps/a [{"op":"test","path":"/data/k","value":"x"}]`,
		want: "422 Invalid: the server rejected our request due to an error in our request",
	},
	{
		name:  "a patch of an unknown type",
		given: []string{aConfigMap}, when: `PATCH configmaps/a {}`,
		want: "415 UnsupportedMediaType: 415: Unsupported Media Type",
	},
	{
		name:  "a strategic patch to a wrong type",
		given: []string{aDeployment}, when: `STRATEGIC deployments/web {"spec":{"replicas":"x"}}`,
		want: `422 Invalid:  "" is invalid: patch: Invalid value: "map[spec:map[replicas:x]]": unrecognized type: ` +
			`int32` +
			"\nFieldValueInvalid patch",
	},
	{
		name:  "a strategic patch with an unknown directive",
		given: []string{aDeployment}, when: `STRATEGIC deployments/web {"metadata":{"$patch":"sideways"}}`,
		want: "500 <nil>: unknown patch type: sideways in map: map[$patch:sideways]",
	},
	{
		name:  "a strategic patch that is malformed",
		given: []string{aConfigMap}, when: `STRATEGIC configmaps/a {"metadata":{"$retainKeys":1}}`,
		want: "400 BadRequest: invalid patch format of retainKeys",
	},
	{
		name:  "a strategic patch with an unknown field, with strict validation",
		given: []string{aConfigMap}, when: `STRATEGIC configmaps/a?fieldValidation=Strict {"dat":{}}`,
		want: `422 Invalid:  "" is invalid: patch: Invalid value: "map[dat:map[]]": strict decoding error: unknown ` +
			`field "dat"` +
			"\nFieldValueInvalid patch",
	},
	{
		name:  "a strategic patch with an unknown field",
		given: []string{aConfigMap}, when: `STRATEGIC configmaps/a {"dat":{}}`, want: "200 unchanged",
	},
	{
		name:  "a merge patch to a wrong type",
		given: []string{aConfigMap}, when: `MERGE configmaps/a {"immutable":"x"}`,
		want: `422 Invalid:  "" is invalid: patch: Invalid value: "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"v\"},` +
			`\"immutable\":\"x\",` +
			`\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\",\"namespace\":\"default\",` +
			`\"uid\":\"370cabd5-0000-4000-8000-000000000002\",\"resourceVersion\":\"3\",` +
			`\"creationTimestamp\":\"2000-01-01T00:00:00Z\"}}": json: cannot unmarshal string into Go struct field ` +
			"ConfigMap.immutable of type bool\nFieldValueInvalid patch",
	},
	{
		name:  "a patch that renames",
		given: []string{aConfigMap}, when: `MERGE configmaps/a {"metadata":{"name":"b"}}`,
		want: "400 BadRequest: the name of the object (b) does not match the name on the URL (a)",
	},
	{
		name:  "a malformed patch",
		given: []string{aConfigMap}, when: `MERGE configmaps/a [`,
		want: "400 BadRequest: invalid JSON patch",
	},

	// Delete.
	{
		name: "a deletion of an object that does not exist", when: `DELETE configmaps/a`,
		want: `404 NotFound: configmaps "a" not found`,
	},
	{
		name: "a deletion", given: []string{aConfigMap}, when: `DELETE configmaps/a`, want: "200 deleted",
	},
	{
		name:  "a dry run of a deletion",
		given: []string{aConfigMap}, when: `DELETE configmaps/a?dryRun=All`, want: "200 unchanged",
	},
	{
		name:  "a deletion with the uid of another object",
		given: []string{aDeployment}, when: `DELETE deployments/web {"preconditions":{"uid":"x"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on Deployment.apps "web": the UID in the precondition (x) ` +
			`does not match the ` +
			`UID in record (370cabd5-0000-4000-8000-000000000002). The object might have been deleted and then recreated`,
	},
	{
		name:  "a deletion of another version",
		given: []string{aDeployment},
		when:  `DELETE deployments/web {"preconditions":{"uid":"$uid","resourceVersion":"1"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on Deployment.apps "web": the ResourceVersion in the ` +
			`precondition (1) does not ` +
			`match the ResourceVersion in record (3). The object might have been modified`,
	},
	{
		name:  "a deletion with preconditions that match",
		given: []string{aDeployment},
		when:  `DELETE deployments/web {"preconditions":{"uid":"$uid","resourceVersion":"$version"}}`,
		want:  "200 deleted",
	},
	{
		name:  "a deletion in the foreground waits",
		given: []string{aDeployment}, when: `DELETE deployments/web {"propagationPolicy":"Foreground"}`,
		want: "200 written generation 2 deleting foregroundDeletion",
	},
	{
		name:  "a second deletion changes nothing",
		given: []string{aDeployment, `DELETE deployments/web {"propagationPolicy":"Foreground"}`},
		when:  `DELETE deployments/web`,
		want:  "200 unchanged",
	},
	{
		name:  "a second deletion with another policy",
		given: []string{aDeployment, `DELETE deployments/web {"propagationPolicy":"Foreground"}`},
		when:  `DELETE deployments/web {"propagationPolicy":"Orphan"}`,
		want:  "200 written generation 2 deleting orphan",
	},
	{
		name:  "Events have no propagation",
		given: []string{`POST events {"metadata":{"name":"e"}}`},
		when:  `DELETE events/e {"propagationPolicy":"Foreground"}`,
		want:  "200 deleted",
	},
	{
		name: "the deprecated orphanDependents", given: []string{aDeployment},
		when: `DELETE deployments/web {"orphanDependents":true}`,
		want: "200 written generation 2 deleting orphan",
	},
	{
		name:  "a finalizer waits",
		given: []string{`POST deployments {"metadata":{"name":"web","finalizers":["x/y"]}}`},
		when:  `DELETE deployments/web`,
		want:  "200 written generation 2 deleting x/y",
	},
	{
		name:  "no finalizer may be added to an object that is being deleted",
		given: []string{`POST deployments {"metadata":{"name":"web","finalizers":["x/y"]}}`, `DELETE deployments/web`},
		when:  `MERGE deployments/web {"metadata":{"finalizers":["x/y","x/z"]}}`,
		want: "422 Invalid: Deployment.apps \"web\" is invalid: metadata.finalizers: Forbidden: no new finalizers " +
			"can be added if the object is being deleted, found new finalizers " +
			"[]string{\"x/z\"}\nFieldValueForbidden metadata.finalizers",
	},
	{
		name:  "removing the last finalizer removes the object",
		given: []string{`POST deployments {"metadata":{"name":"web","finalizers":["x/y"]}}`, `DELETE deployments/web`},
		when:  `MERGE deployments/web {"metadata":{"finalizers":null}}`, want: "200 deleted",
	},
	{
		name: "an unknown policy", given: []string{aDeployment},
		when: `DELETE deployments/web {"propagationPolicy":"Sideways"}`,
		want: "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: " +
			"\"Sideways\": supported values: " +
			"\"Foreground\", \"Background\", \"Orphan\", \"nil\"\nFieldValueNotSupported propagationPolicy",
	},
	{
		name: "a collection", given: []string{aConfigMap}, when: `DELETE configmaps?labelSelector=a!=b`, want: "200",
	},

	{
		name:  "the deprecated orphanDependents=false, in the foreground",
		given: []string{`POST deployments {"metadata":{"name":"web","finalizers":["x/y"]}}`},
		when:  `DELETE deployments/web {"orphanDependents":false}`, want: "202 written generation 2 deleting x/y",
	},
	{
		name:  "malformed options",
		given: []string{aDeployment}, when: `DELETE deployments/web []`,
		want: "400 BadRequest: json: cannot unmarshal array into Go value of type v1.DeleteOptions",
	},

	// Scale.
	{
		name:  "a scale",
		given: []string{aDeployment},
		when:  `PUT deployments/web/scale {"metadata":{"name":"web"},"spec":{"replicas":5}}`,
		want:  "200 written generation 2",
	},
	{
		name:  "a scale of an old version",
		given: []string{aDeployment},
		when:  `PUT deployments/web/scale {"metadata":{"name":"web","resourceVersion":"1"},"spec":{"replicas":5}}`,
		want:  `409 Conflict: Operation cannot be fulfilled on deployments.apps "web": ` + anObjectMod,
	},
	{
		name:  "a scale with negative replicas",
		given: []string{aDeployment}, when: `MERGE deployments/web/scale {"spec":{"replicas":-1}}`,
		want: "422 Invalid: Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater " +
			"than or equal to 0\n" +
			"FieldValueInvalid spec.replicas",
	},
	{
		name:  "a scale of a custom kind",
		given: []string{aWidget}, when: `MERGE widgets/w/scale {"spec":{"replicas":7}}`,
		want: "200 written generation 2",
	},
	{
		name:  "a scale with the uid of another object",
		given: []string{aDeployment}, when: `MERGE deployments/web/scale {"metadata":{"uid":"x"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on deployments/scale.apps "web": Precondition failed: UID ` +
			`in precondition: x, UID in object meta: 370cabd5-0000-4000-8000-000000000002`,
	},
	{
		name:  "a patch of a scale without replicas",
		given: []string{`POST widgets {$widget,"metadata":{"name":"w"},"spec":{}}`}, when: `MERGE widgets/w/scale {}`,
		want: `400 BadRequest: the spec replicas field ".spec.size" cannot be empty`,
	},
	{
		name:  "a scale is not deleted",
		given: []string{aDeployment}, when: `DELETE deployments/web/scale`,
		want: "405 MethodNotAllowed: delete is not supported on resources of kind \"deployments.apps\"",
	},
	{
		name:  "a scale without replicas",
		given: []string{`POST widgets {$widget,"metadata":{"name":"w"},"spec":{}}`}, when: `GET widgets/w/scale`,
		want: `500 InternalError: Internal error occurred: the spec replicas field ".spec.size" does not ` +
			`exist` + "\n<nil> <nil>",
	},

	// Namespaces.
	{
		name: "a namespace gets its finalizer", when: `PUT namespaces/default {"metadata":{"name":"default"}}`,
		want: "200 unchanged",
	},
	{
		name: "a namespace that may not be deleted", when: `DELETE namespaces/default`,
		want: `403 Forbidden: namespaces "default" is forbidden: this namespace may not be deleted`,
	},
	{
		name: "a namespace waits for its content", given: []string{`POST namespaces {"metadata":{"name":"n"}}`},
		when: `DELETE namespaces/n`, want: "200 written generation 0 deleting",
	},
	{
		name: "a deletion with the uid of another namespace", given: []string{`POST namespaces {"metadata":{"name":"n"}}`},
		when: `DELETE namespaces/n {"preconditions":{"uid":"x"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on namespaces "n": Precondition failed: UID in ` +
			`precondition: x, UID in object meta: 370cabd5-0000-4000-8000-000000000002`,
	},
	{
		name:  "a deletion with another version of the namespace",
		given: []string{`POST namespaces {"metadata":{"name":"n"}}`},
		when:  `DELETE namespaces/n {"preconditions":{"resourceVersion":"1"}}`,
		want: `409 Conflict: Operation cannot be fulfilled on namespaces "n": Precondition failed: ResourceVersion ` +
			`in precondition: 1, ResourceVersion in object meta: 3`,
	},
	{
		name:  "a second deletion of a namespace",
		given: []string{`POST namespaces {"metadata":{"name":"n"}}`, `DELETE namespaces/n`},
		when:  `DELETE namespaces/n`, want: "200 unchanged",
	},
	{
		name:  "a namespace without contents is removed",
		given: []string{`POST namespaces {"metadata":{"name":"n"}}`, `DELETE namespaces/n`},
		when:  `PUT namespaces/n/finalize {"metadata":{"name":"n"}}`, want: "200 deleted",
	},
}

func TestWrites(t *testing.T) {
	for _, test := range writes {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				r := &requester{t, s}
				for _, given := range test.given {
					if code, answer := r.do(given); code >= 300 {
						t.Fatalf("%s: %d %v", given, code, answer)
					}
				}
				if diff := cmp.Diff(test.want, r.result(test.when)); diff != "" {
					t.Errorf("%s (-want +got):\n%s\n%s", test.when, diff, s.Trace())
				}
			})
		})
	}
}

func TestClientsCannotSetSystemFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		r := &requester{t, s}
		const claims = `"uid":"x","creationTimestamp":"2001-01-01T00:00:00Z",` +
			`"deletionTimestamp":"2001-01-01T00:00:00Z","deletionGracePeriodSeconds":5,"generation":7,` +
			`"managedFields":[{"manager":"x"}]`
		for _, request := range []string{
			`POST widgets {$widget,"metadata":{"name":"w",` + claims + `},"spec":{"size":1},"status":{"phase":"Done"}}`,
			`MERGE widgets/w {"metadata":{"creationTimestamp":"2002-01-01T00:00:00Z","generation":9,"managedFields":[]},` +
				`"status":{"phase":"Done"}}`,
		} {
			if code, answer := r.do(request); code >= 300 {
				t.Fatalf("%s: %d %v", request, code, answer)
			}
			got := s.Object(widgets, "default", "w").(*Widget)
			want := &Widget{
				TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
				ObjectMeta: metav1.ObjectMeta{
					Name: "w", Namespace: "default", UID: "370cabd5-0000-4000-8000-000000000002", Generation: 1,
					CreationTimestamp: metav1.Now().Rfc3339Copy(), ResourceVersion: got.ResourceVersion,
				},
				Spec:   WidgetSpec{Size: new(int32(1))},
				Status: WidgetStatus{Phase: "Pending"},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", request, diff)
			}
		}
	})
}
