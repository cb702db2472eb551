package plan_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file is about Foos with stored fields that could not be decoded.

// withUnread adds fields that could not be decoded, and that were "x".
func withUnread(paths ...string) fooOption {
	return func(foo *v1alpha1.Foo) {
		for _, path := range paths {
			foo.Unread = append(foo.Unread, v1alpha1.UnreadField{Path: path, Value: `"x"`, Want: "an object"})
		}
	}
}

func TestAFooWithAFieldThatCannotBeReadIsInvalidUnlessItIsOfTheStatus(t *testing.T) {
	foo := newFoo(withReplicas(3))
	const cannotBeRead = ` cannot be read: it is "x", and not an object. Correct it` + editWeb
	for _, tc := range []struct {
		name    string
		unread  []string
		changes fooOption // What the decoder left out.
		have    *appsv1.Deployment
		want    string
		report  string
	}{
		{
			name: "a number of replicas", unread: []string{"spec.replicas"}, changes: unsetReplicas,
			have: newDeployment(foo, scaled(9), available(3)),
			want: v1alpha1.ReasonInvalid, report: stalled + "Invalid: spec.replicas" + cannotBeRead,
		},
		{
			name: "the name, of which the reason is not that it is missing", unread: []string{"spec.deploymentName"},
			changes: withDeploymentName(""),
			want:    v1alpha1.ReasonInvalid, report: stalled + "Invalid: spec.deploymentName" + cannotBeRead,
		},
		{
			name: "metadata, which may be a time of deletion", unread: []string{"metadata.deletionTimestamp"},
			want: v1alpha1.ReasonInvalid, report: stalled + "Invalid: metadata.deletionTimestamp" + cannotBeRead,
		},
		{
			name: "the first of several", unread: []string{"status.replicas", "spec.image", "spec.paused"},
			want: v1alpha1.ReasonInvalid, report: stalled + "Invalid: spec.image" + cannotBeRead,
		},
		{
			name: "the status alone", unread: []string{"status.conditions[0].lastTransitionTime"},
			have: newDeployment(foo, scaled(9), available(3)),
			want: "get Foo, patch spec.replicas", report: available3,
		},
		{
			name: "the whole status", unread: []string{"status"},
			have: newDeployment(foo, available(3)), want: "nothing", report: available3,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foo := newFoo(withReplicas(3), withUnread(tc.unread...))
			if tc.changes != nil {
				tc.changes(foo)
			}
			c := play(t, world{Foo: foo, Deployment: tc.have})
			checkSent(t, tc.want, c.result())
			if c.report() != tc.report {
				t.Errorf("report:\n%s, want\n%s", c.report(), tc.report)
			}
			for _, field := range c.reported().Unread {
				if strings.HasPrefix(field.Path, "status.") || field.Path == "status" {
					t.Errorf("the status that is sent is marked as unread: %v", field)
				}
			}
			again := play(t, c.nextSync(time.Second))
			if again.last() != nil {
				t.Errorf("the next sync sends %s", wordsOf(again.last()))
			}
		})
	}
}

// Whether there was a Deployment is only known from the status.
func TestAFooWhoseStatusCannotBeReadIsReadLiveBeforeACreate(t *testing.T) {
	c := play(t, world{Foo: newFoo(withUnread("status.observedGeneration"))})
	checkSent(t, "get Foo, create web-1", c.sent())
}
