package report

import (
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
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
	foos := New(nil)
	logger, lines := newLog()
	logger = klog.LoggerWithValues(logger, "foo", "default/web")
	for i := range 3 {
		foos.Read(logger, unreadFoo("1", fmt.Sprint(i), "spec.image", "status.selector")) // Whatever the value is.
		foos.Read(logger, unreadFoo("2", "7", "spec.image"))
		foos.Read(logger, unreadFoo("3", ""))
	}
	mustLog(t, lines,
		"Foo has a field that cannot be read foo=default/web field=spec.image value=0 want=a string",
		"Foo has a field that cannot be read foo=default/web field=status.selector value=0 want=a string",
		"Foo has a field that cannot be read foo=default/web field=spec.image value=7 want=a string")
}

// The first of 10,001 fields is forgotten with all others when the last one comes.
func TestTheMemoryOfUnreadFieldsIsBounded(t *testing.T) {
	foos := New(nil)
	logger, lines := newLog()
	for i := range 10_001 {
		foos.Read(logger, unreadFoo(types.UID(fmt.Sprint(i)), "", "spec"))
	}
	foos.Read(logger, unreadFoo("10000", "", "spec"))
	foos.Read(logger, unreadFoo("0", "", "spec"))
	if got := len(lines()); got != 10_002 {
		t.Errorf("%d lines, want 10,002", got)
	}
}

func TestUnreadFieldsMayBeLoggedConcurrently(t *testing.T) {
	foos := New(nil)
	logger, lines := newLog()
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range 100 {
				foos.Read(logger, unreadFoo(types.UID(fmt.Sprint(i)), "", "spec"))
			}
		})
	}
	workers.Wait()
	if got := len(lines()); got != 100 {
		t.Errorf("%d lines, want 100", got)
	}
}
