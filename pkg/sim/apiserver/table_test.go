package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// asTable makes a request for a table, and returns the code and the body of the response.
func asTable(t *testing.T, s *apiserver.Server, path string) (int, io.ReadCloser) {
	t.Helper()
	return sendForTable(t, s, http.MethodGet, path)
}

func sendForTable(t *testing.T, s *apiserver.Server, method, path string) (int, io.ReadCloser) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://apiserver"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1,application/json")
	response, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Body
}

// table returns the lines of a table: the names of its columns, with a * if they are wide, and its rows.
func table(t *testing.T, s *apiserver.Server, path string) []string {
	t.Helper()
	code, body := asTable(t, s, path)
	defer body.Close()
	got := &metav1.Table{}
	if err := json.NewDecoder(body).Decode(got); err != nil || code != http.StatusOK || got.Kind != "Table" {
		t.Fatalf("get %s as a table: %d, %v, %v", path, code, got, err)
	}
	return lines(got)
}

func lines(table *metav1.Table) []string {
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name+strings.Repeat("*", int(column.Priority)))
	}
	all := []string{strings.Join(names, "|")}
	for _, row := range table.Rows {
		cells, _ := json.Marshal(row.Cells) // They come from JSON.
		all = append(all, string(cells))
	}
	return all
}

func TestATableOfACustomResourceHasTheColumnsOfItsDefinition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		column := func(name, path string) apiserver.Column {
			return apiserver.Column{Name: name, Type: strings.ToLower(name), JSONPath: path}
		}
		s := apiserver.New(apiserver.Kind{
			Resource: gadgets, Kind: "Gadget", Object: &unstructured.Unstructured{}, ClusterScoped: true,
			Columns: []apiserver.Column{
				column("String", `.spec.notes[?(@.type=="Ready")].text`), column("Integer", ".spec.n"),
				column("Number", ".spec.n"), column("Boolean", ".spec.yes"), column("Date", ".metadata.creationTimestamp"),
			},
		})
		r := &requester{t, s}
		r.do(`POST gadgets {$gadget,"metadata":{"name":"a"},"spec":{"notes":[{"type":"X"},{"type":"Ready","text":"t"}],` +
			`"n":3,"yes":true}}`)
		r.do(`POST gadgets {$gadget,"metadata":{"name":"b"},"spec":{"n":2.5,"notes":[{"type":"Ready","text":{"x":1}}],` +
			`"yes":"no"}}`)
		r.do(`POST gadgets {$gadget,"metadata":{"name":"c"}}`)
		time.Sleep(90 * time.Second)
		want := []string{
			"Name|String|Integer|Number|Boolean|Date",
			`["a","t",3,3,true,"90s"]`,
			`["b","{\"x\":1}",2,2.5,null,"90s"]`,
			`["c",null,null,null,null,"90s"]`,
		}
		if diff := cmp.Diff(want, table(t, s, "/apis/example.com/v1/gadgets")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestATableWithoutColumnsHasNameAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		r := &requester{t, s}
		r.do(aWidget)
		r.do(`POST jobs {"metadata":{"name":"j"}}`)
		for path, want := range map[string]string{
			"/apis/example.com/v1/widgets": `["w","0s"]`, "/apis/batch/v1/namespaces/default/jobs/j": `["j","0s"]`,
		} {
			if diff := cmp.Diff([]string{"Name|Age", want}, table(t, s, path)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	})
}

func TestTablesOfBuiltInKindsHaveTheColumnsOfARealServer(t *testing.T) {
	const inDefault = "/namespaces/default"
	events := []string{
		"Last Seen|Type|Reason|Object|Subobject*|Source*|Message|First Seen*|Count*|Name*",
		`["5s","Normal","Done","widget/w","","c, i","It is done","60s",3,"e"]`,
	}
	for path, want := range map[string][]string{
		"/api/v1/namespaces":                  {"Name|Status|Age", `["default","Active","60s"]`},
		"/api/v1" + inDefault + "/configmaps": {"Name|Data|Age", `["a",1,"60s"]`},
		"/api/v1" + inDefault + "/events":     events,
		"/apis/events.k8s.io/v1/events":       events,
		"/apis/coordination.k8s.io/v1/leases": {"Name|Holder|Age", `["l","x","60s"]`},
		"/apis/apps/v1" + inDefault + "/deployments": {
			"Name|Ready|Up-to-date|Available|Age|Containers*|Images*|Selector*",
			`["d","2/4",3,1,"60s","c,e","i,j","app=d"]`,
		},
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				r := &requester{t, s}
				r.do(aConfigMap)
				r.do(`POST leases {"metadata":{"name":"l"},"spec":{"holderIdentity":"x"}}`)
				r.do(`POST events {"metadata":{"name":"e"},"eventTime":"2000-01-01T00:00:00.000000Z","type":"Normal",` +
					`"reason":"Done","note":" It is done\n","regarding":{"kind":"Widget","name":"w"},` +
					`"reportingController":"c","reportingInstance":"i",` +
					`"series":{"count":3,"lastObservedTime":"2000-01-01T00:00:55.000000Z"}}`)
				r.do(`POST deployments {"metadata":{"name":"d"},"spec":{"replicas":4,"selector":{"matchLabels":` +
					`{"app":"d"}},"template":{"spec":{"containers":[{"name":"c","image":"i"},{"name":"e","image":"j"}]}}}}`)
				r.do(`MERGE deployments/d/status {"status":{"readyReplicas":2,"updatedReplicas":3,"availableReplicas":1}}`)
				time.Sleep(time.Minute)
				if diff := cmp.Diff(want, table(t, s, path)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRowsHaveAsMuchOfTheObjectAsTheClientWants(t *testing.T) {
	const metadata = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"w",` +
		`"namespace":"default","uid":"370cabd5-0000-4000-8000-000000000002","resourceVersion":"3","generation":1,` +
		`"creationTimestamp":"2000-01-01T00:00:00Z"}}`
	for include, want := range map[string]string{
		"":         `"object":` + metadata,
		"Metadata": `"object":` + metadata,
		"None":     `"object":null`,
		"Object":   `"object":{"kind":"Widget","apiVersion":"example.com/v1"`,
		"All": `"message":"Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be ` +
			`'Metadata', 'Object', 'None', or empty","reason":"BadRequest","code":400`,
	} {
		for _, path := range []string{"/w?", "?", "?watch=1&resourceVersion=2&timeoutSeconds=5&"} {
			t.Run(path+include, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := apiserver.New(kinds()...)
					r := &requester{t, s}
					r.do(aWidget)
					widgets := "/apis/example.com/v1/namespaces/default/widgets"
					_, body := asTable(t, s, widgets+path+"includeObject="+include)
					defer body.Close()
					if got, err := io.ReadAll(body); err != nil || !strings.Contains(string(got), want) {
						t.Errorf("got %s, %v, want %s in it", got, err, want)
					}
				})
			})
		}
	}
}

func TestAWatchHasTheColumnsOfItsTableOnlyInTheFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiserver.New(kinds()...)
		r := &requester{t, s}
		r.do(aConfigMap)
		const query = "?watch=1&resourceVersion=2&timeoutSeconds=70&allowWatchBookmarks=true"
		_, body := asTable(t, s, "/api/v1/configmaps"+query)
		defer body.Close()
		r.do(`DELETE configmaps/a`)
		var got []string
		for events := json.NewDecoder(body); ; {
			var event struct {
				Type   string
				Object metav1.Table
			}
			if events.Decode(&event) != nil {
				break
			}
			for _, line := range lines(&event.Object) {
				got = append(got, event.Type+" "+line)
			}
		}
		want := []string{
			"ADDED Name|Data|Age", `ADDED ["a",1,"0s"]`, "DELETED ", `DELETED ["a",1,"0s"]`,
			"BOOKMARK ", `BOOKMARK ["",0,"\u003cunknown\u003e"]`,
		}
		if diff := cmp.Diff(want, got[:6]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestAColumnWithAWrongPathIsNoticed(t *testing.T) {
	defer func() {
		if message := fmt.Sprint(recover()); !strings.Contains(message, "column X") {
			t.Errorf("New panics with %s", message)
		}
	}()
	kind := widgetKind
	kind.Columns = []apiserver.Column{{Name: "X", JSONPath: ".spec["}}
	apiserver.New(kind)
}

func TestADeletionThatAsksForAWrongTableIsExecuted(t *testing.T) {
	s := apiserver.New(kinds()...)
	(&requester{t, s}).do(aConfigMap)
	const path = "/api/v1/namespaces/default/configmaps/a"
	for _, step := range []struct {
		method string
		want   int
	}{{http.MethodDelete, http.StatusBadRequest}, {http.MethodGet, http.StatusNotFound}} {
		code, body := sendForTable(t, s, step.method, path+"?includeObject=x")
		body.Close()
		if code != step.want {
			t.Errorf("%s: %d, want %d", step.method, code, step.want)
		}
	}
}
