package logging_test

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/logging"
)

// unreadFoo returns a Foo some of whose fields could not be decoded.
func unreadFoo(uid types.UID, value string, paths ...string) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	for _, path := range paths {
		foo.Unread = append(foo.Unread, v1alpha1.UnreadField{Path: path, Value: value, Want: "a string"})
	}
	return foo
}

func TestEachUnreadFieldOfAFooIsLoggedOnce(t *testing.T) {
	log, unread := newLog(t), logging.Unread{}
	logger := klog.LoggerWithValues(log.Logger, "foo", "default/web")
	for i := range 3 {
		unread.Observed(logger, unreadFoo("1", fmt.Sprint(i), "spec.image", "status.selector")) // Whatever the value is.
		unread.Observed(logger, unreadFoo("2", "7", "spec.image"))
		unread.Observed(logger, unreadFoo("3", ""))
	}
	log.check(t,
		"INFO Foo has a field that cannot be read foo=default/web field=spec.image value=0 want=a string",
		"INFO Foo has a field that cannot be read foo=default/web field=status.selector value=0 want=a string",
		"INFO Foo has a field that cannot be read foo=default/web field=spec.image value=7 want=a string")
}

// The first of 10,001 fields is forgotten with all others when the last one comes.
func TestTheMemoryOfUnreadFieldsIsBounded(t *testing.T) {
	log, unread := newLog(t), logging.Unread{}
	for i := range 10_001 {
		unread.Observed(log.Logger, unreadFoo(types.UID(fmt.Sprint(i)), "", "spec"))
	}
	unread.Observed(log.Logger, unreadFoo("10000", "", "spec"))
	unread.Observed(log.Logger, unreadFoo("0", "", "spec"))
	if got := len(log.all()); got != 10_002 {
		t.Errorf("%d lines, want 10,002", got)
	}
}

func TestUnreadFieldsMayBeLoggedConcurrently(t *testing.T) {
	log, unread := newLog(t), logging.Unread{}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range 100 {
				unread.Observed(log.Logger, unreadFoo(types.UID(fmt.Sprint(i)), "", "spec"))
			}
		})
	}
	workers.Wait()
	if got := len(log.all()); got != 100 {
		t.Errorf("%d lines, want 100", got)
	}
}
