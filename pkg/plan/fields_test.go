package plan

import (
	"fmt"
	"reflect"
	"testing"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// If Deployment, Trim or Drift forgets a field of FooSpec, the field is never corrected, or corrected in every sync.
// This file asks all three about every field, including those that are added later.

// notOfTheDeployment are the fields that are not a field of the Deployment.
var notOfTheDeployment = map[string]string{
	"DeploymentName": "another name means another Deployment, and the API server allows no Deployment to be renamed",
	"Paused":         "it decides whether the controller writes, not what",
}

func TestEveryFieldOfTheSpecIsCreatedAndKept(t *testing.T) {
	foo := fooWithAllFields(t)
	dep := storedAndCached(t, foo)
	if drift := Drift(dep, foo); drift != nil {
		t.Errorf("a new Deployment differs from its Foo: %v", drift.Fields)
	}

	for field := range reflect.TypeFor[v1alpha1.FooSpec]().Fields() {
		if notOfTheDeployment[field.Name] != "" {
			continue
		}
		t.Run(field.Name, func(t *testing.T) {
			changed := foo.DeepCopy()
			setField(t, field, reflect.ValueOf(&changed.Spec).Elem().FieldByIndex(field.Index), 3)
			if Drift(dep, changed) == nil {
				t.Errorf("spec.%s of the Foo has changed, and nothing is patched", field.Name)
			}
		})
	}
}

// A field that is excepted must exist.
func TestExceptedFieldsExist(t *testing.T) {
	for name := range notOfTheDeployment {
		if _, found := reflect.TypeFor[v1alpha1.FooSpec]().FieldByName(name); !found {
			t.Errorf("FooSpec has no field %s", name)
		}
	}
}

// fooWithAllFields returns a Foo that sets every field of its spec. A paused one is created and compared alike.
func fooWithAllFields(t *testing.T) *v1alpha1.Foo {
	t.Helper()
	foo := &v1alpha1.Foo{}
	foo.Namespace, foo.Name, foo.UID, foo.Generation = "default", "web", "foo-uid", 1
	for field := range reflect.TypeFor[v1alpha1.FooSpec]().Fields() {
		setField(t, field, reflect.ValueOf(&foo.Spec).Elem().FieldByIndex(field.Index), 2)
	}
	return foo
}

// setField gives a field a value that stands for n. It is neither the zero value nor a default.
func setField(t *testing.T, field reflect.StructField, value reflect.Value, n int64) {
	t.Helper()
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		setField(t, field, value.Elem(), n)
	case reflect.String:
		value.SetString(fmt.Sprint("value-", n))
	case reflect.Int32, reflect.Int64:
		value.SetInt(n)
	case reflect.Bool:
		value.SetBool(n == 2)
	default:
		t.Fatalf("spec.%s is of the kind %s: add a case here that sets it", field.Name, value.Kind())
	}
}

// storedAndCached returns what the cache has of foo's new Deployment.
func storedAndCached(t *testing.T, foo *v1alpha1.Foo) *Observed {
	t.Helper()
	dep := Deployment(foo)
	dep.UID, dep.ResourceVersion = "dep-uid", "1"
	trimmed, err := Trim(dep)
	if err != nil {
		t.Fatal(err)
	}
	return trimmed.(*Observed)
}
