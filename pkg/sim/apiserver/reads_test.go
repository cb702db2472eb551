package apiserver_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"example.com/foo-controller/pkg/sim/apiserver"
)

func clientOf(s *apiserver.Server, user string) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(s.Config(user))
}

func listOptions(version string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: version}
}

// listed describes the items of a list.
func listed(code int, answer map[string]any) string {
	if code != 200 {
		return refusalWords(code, answer)
	}
	metadata := answer["metadata"].(map[string]any)
	var names []string
	for _, item := range answer["items"].([]any) {
		m := item.(map[string]any)["metadata"].(map[string]any)
		names = append(names, fmt.Sprintf("%v@%v", m["name"], m["resourceVersion"]))
	}
	words := fmt.Sprintf("%s at %v", strings.Join(names, " "), metadata["resourceVersion"])
	if remaining, found := metadata["remainingItemCount"]; found {
		words += fmt.Sprintf(", %v more", remaining)
	}
	return words
}

func TestReads(t *testing.T) {
	for _, test := range []struct {
		name    string
		compact bool
		when    string
		want    string
	}{
		{name: "the current objects", when: "GET configmaps", want: "b@6 at 7"},
		{name: "from any version", when: "GET configmaps?resourceVersion=0&limit=1", want: "b@6 at 7"},
		{
			name: "exactly an earlier version", when: "GET configmaps?resourceVersion=4&resourceVersionMatch=Exact",
			want: "a@3 b@4 at 4",
		},
		{
			name: "the first page of an earlier version",
			when: "GET configmaps?resourceVersion=4&limit=1", want: "a@3 at 4, 1 more",
		},
		{name: "not older than a version", when: "GET configmaps?resourceVersion=4&resourceVersionMatch=NotOlderThan",
			want: "b@6 at 7"},
		{
			name: "a version that does not exist yet", when: "GET configmaps?resourceVersion=8",
			want: "504 Timeout: Timeout: Too large resource version: 8, current: 7\nResourceVersionTooLarge <nil>",
		},
		{
			name: "a version that was compacted", compact: true,
			when: "GET configmaps?resourceVersion=4&resourceVersionMatch=Exact",
			want: "410 Expired: The resourceVersion for the provided list is too old.",
		},
		{name: "the version of the compaction", compact: true, when: "GET configmaps?resourceVersion=7&limit=5",
			want: "b@6 at 7"},
		{name: "labels", when: "GET configmaps?labelSelector=color=blue", want: " at 7"},
		{name: "fields", when: "GET widgets?fieldSelector=spec.color=green", want: "w@5 at 7"},
		{
			name: "a malformed selector", when: "GET configmaps?labelSelector=a=b=c",
			want: "400 BadRequest: found '=', expected: ',' or 'end of string'",
		},
		{
			name: "an unknown field of a custom kind", when: "GET widgets?fieldSelector=spec.size=3",
			want: "400 BadRequest: field label not supported: spec.size",
		},
		{
			name: "an unknown field", when: "GET configmaps?fieldSelector=data=3",
			want: `400 BadRequest: "data" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		},
		{name: "a malformed version", when: "GET configmaps?resourceVersion=x",
			want: "400 BadRequest: invalid resource version: " +
				`resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		{
			name: "a malformed token", when: "GET configmaps?continue=x",
			want: "400 BadRequest: invalid continue token: continue key is not valid: illegal base64 data at input " +
				"byte 0",
		},
		{
			name: "a token of another form", when: "GET configmaps?continue=" + token(`{"v":"v2"}`),
			want: "400 BadRequest: invalid continue token: continue key is not valid: server does not recognize this " +
				"encoded version v2",
		},
		{
			name: "a token without a version", when: "GET configmaps?continue=" + token(`{"v":"meta.k8s.io/v1"}`),
			want: "400 BadRequest: invalid continue token: continue key is not valid: incorrect encoded start " +
				"resourceVersion (version meta.k8s.io/v1)",
		},
		{
			name: "a token without a start", when: "GET configmaps?continue=" + token(`{"v":"meta.k8s.io/v1","rv":3}`),
			want: "400 BadRequest: invalid continue token: continue key is not valid: encoded start key empty " +
				"(version meta.k8s.io/v1)",
		},
		{
			name: "a token with a relative path",
			when: "GET configmaps?continue=" + token(`{"v":"meta.k8s.io/v1","rv":3,"start":"../x"}`),
			want: "400 BadRequest: invalid continue token: continue key is not valid: ../x",
		},
		{
			name: "a token with a version", when: "GET configmaps?resourceVersion=4&continue=" +
				token(`{"v":"meta.k8s.io/v1","rv":3,"start":"x"}`),
			want: "400 BadRequest: specifying resource version is not allowed when using continue",
		},
		{
			name: "a match without a version", when: "GET configmaps?resourceVersionMatch=Exact",
			want: "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: " +
				"resourceVersionMatch is " +
				"forbidden unless resourceVersion is provided\nFieldValueForbidden resourceVersionMatch",
		},
		{name: "an object that does not exist", when: "GET configmaps/x", want: `404 NotFound: configmaps "x" not found`},
		{
			name: "an object at a version that does not exist yet", when: "GET configmaps/b?resourceVersion=8",
			want: "504 Timeout: Timeout: Too large resource version: 8, current: 7\nResourceVersionTooLarge <nil>",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, r := afterThePast(t, test.compact)
				if diff := cmp.Diff(test.want, listed(r.do(test.when))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", test.when, diff)
				}
			})
		})
	}
}

// afterThePast returns a server after the requests of past, and a requester for it.
func afterThePast(t *testing.T, compacted bool) (*apiserver.Server, *requester) {
	s := apiserver.New(kinds()...)
	r := &requester{t, s}
	for _, request := range past {
		r.do(request)
	}
	if compacted {
		s.Compact()
	}
	return s, r
}

func token(words string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(words))
}

func TestListsAtTheVersionOfTheCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		r := &requester{t, s}
		r.do(`POST configmaps {"metadata":{"name":"a"}}`)
		r.do(`POST configmaps {"metadata":{"name":"b"}}`)
		r.do(`POST configmaps {"metadata":{"name":"c"}}`)
		s.Compact()
		r.do(`MERGE configmaps/a {"data":{"k":"v"}}`)
		r.do(`DELETE configmaps/b`)
		r.do(`POST configmaps {"metadata":{"name":"d"}}`)
		for version, want := range map[string]string{
			"5": "a@3 b@4 c@5 at 5", "6": "a@6 b@4 c@5 at 6", "7": "a@6 c@5 at 7", "8": "a@6 c@5 d@8 at 8",
		} {
			got := listed(r.do("GET configmaps?resourceVersionMatch=Exact&resourceVersion=" + version))
			if got != want {
				t.Errorf("at %s: %s, want %s", version, got, want)
			}
		}
	})
}

func TestLoad(t *testing.T) {
	s := apiserver.New(kinds()...)
	old := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w", UID: "u", Generation: 7}}
	for range 2 {
		if err := s.Load(old); err != nil {
			t.Fatal(err)
		}
	}
	got := s.Object(widgets, "default", "w").(*Widget)
	if got.UID != "u" || got.Generation != 7 || got.ResourceVersion != "4" || got.Status.Phase != "" ||
		old.ResourceVersion != "" {
		t.Errorf("loaded %v", got)
	}
	gadget := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"ready": true}}}
	gadget.SetGroupVersionKind(gadgets.GroupVersion().WithKind("Gadget"))
	gadget.SetName("g")
	if err := s.Load(gadget); err != nil {
		t.Fatal(err)
	}
	before := s.Version()
	(&requester{t, s}).do(`MERGE gadgets/g/status {"status":{"ready":true}}`)
	if s.Version() != before {
		t.Error("the first write of a status that changes nothing is a change")
	}
	for _, wrong := range []runtime.Object{
		&metav1.PartialObjectMetadata{}, // A kind that nobody knows.
		&Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}},
		&Widget{ObjectMeta: metav1.ObjectMeta{Name: "w"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "n"}},
	} {
		if err := s.Load(wrong); err == nil {
			t.Errorf("loaded %v", wrong)
		}
	}
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		api := clientOf(s, "alice").CoreV1().ConfigMaps("")
		r := &requester{t, s}
		for _, name := range []string{"e", "d", "c", "b", "a"} {
			r.do(fmt.Sprintf(`POST configmaps {"metadata":{"name":%q}}`, name))
		}
		var got []string
		opts := metav1.ListOptions{Limit: 2}
		for range 2 {
			page, err := api.List(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				got = append(got, item.Name)
			}
			opts.Continue = page.Continue
			r.do(`DELETE configmaps/c`) // The list is of the version that it began with.
		}
		if diff := cmp.Diff([]string{"a", "b", "c", "d"}, got); diff != "" {
			t.Errorf("two pages (-want +got):\n%s", diff)
		}
		s.Compact()
		_, err := api.List(t.Context(), opts)
		if !apierrors.IsResourceExpired(err) {
			t.Fatalf("a token from before the compaction: %v", err)
		}
		opts.Continue = err.(apierrors.APIStatus).Status().ListMeta.Continue
		page, err := api.List(t.Context(), opts)
		if err != nil || len(page.Items) != 1 || page.Items[0].Name != "e" {
			t.Errorf("the rest, inconsistently: %v, %v", page, err)
		}
	})
}

func TestReadWaitsForItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		r := &requester{t, s}
		go func() {
			time.Sleep(2 * time.Second)
			r.do(aConfigMap)
		}()
		if got := listed(r.do("GET configmaps?resourceVersion=3")); got != "a@3 at 3" {
			t.Errorf("a list of a version that comes in time: %s", got)
		}
	})
}

func TestObjectsAndHistory(t *testing.T) {
	s, _ := afterThePast(t, false)
	var got []string
	for _, rev := range s.History(configMaps, widgets) {
		got = append(got, fmt.Sprintf("%d %s %s by %s", rev.Version, rev.Type, rev.Name, rev.User))
	}
	want := []string{
		"3 ADDED a by test", "4 ADDED b by test", "5 ADDED w by test", "6 MODIFIED b by test", "7 DELETED a by test",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if n := len(s.Objects(configMaps)); n != 1 {
		t.Errorf("%d ConfigMaps, want 1", n)
	}
	var none runtime.Object
	if obj := s.Object(configMaps, "default", "a"); obj != none {
		t.Errorf("%v, want nothing", obj)
	}
	s.Compact()
	if n := len(s.History()); n != 0 || s.Version() != 7 {
		t.Errorf("%d revisions after a compaction at version %d", n, s.Version())
	}
}
