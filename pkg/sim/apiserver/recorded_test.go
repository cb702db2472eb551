package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"example.com/foo-controller/pkg/sim/apiserver"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "send the requests to the API server of this file")
	record     = flag.Bool("record", false, "with -kubeconfig: write its answers into the files")
)

// TestAnswersAreThoseRecordedFromARealServer plays the conversations of testdata/*.txt: a name, requests as those of a
// requester, and below each request the answer that a real server gave. hack/test/conformance plays them on a real
// server, which must have the kinds of testdata/kinds, and `make conformance` records its answers. What must differ
// has a name:
//
//   - $V1 is the first version of an object in the conversation, that of its namespace, $V2 the next one. $V2+ is one
//     that no answer to a request has shown as that of an object. So are the versions of all lists.
//   - $UID1, $TOKEN1 and $GEN1 are the first uid, token of a list and generated name.
//
// Requests may have these names, too. Of an object that an earlier answer has, an answer shows only the changes, as a
// merge patch. Below WATCH are the events up to the end of the conversation.
func TestAnswersAreThoseRecordedFromARealServer(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(strings.TrimSpace(string(content)), "\n\n")
		if *record {
			real := realServer(t)
			_, version := real.do("GET /version")
			parts[0] = fmt.Sprintf("# These are answers of Kubernetes %s.", version["gitVersion"])
			t.Cleanup(func() { // After the conversations, which run at once.
				if err := os.WriteFile(file, []byte(strings.Join(parts, "\n\n")+"\n"), 0o600); err != nil {
					t.Error(err)
				}
			})
		}
		for i, part := range parts[1:] {
			name, _, _ := strings.Cut(strings.TrimPrefix(part, "# "), "\n")
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+name, func(t *testing.T) {
				got := converse(t, part)
				if *record {
					parts[i+1] = got
				} else if diff := cmp.Diff(part, got); diff != "" {
					t.Errorf("(-recorded +got):\n%s", diff)
				}
			})
		}
	}
}

// converse plays a conversation and returns it with the answers.
func converse(t *testing.T, conversation string) (played string) {
	if *kubeconfig == "" {
		synctest.Test(t, func(t *testing.T) {
			s := apiserver.New(recordedKinds(t)...)
			p := &player{requester: requester{t: t, server: s, namespace: "conversation"}}
			played = p.play(conversation)
		})
		return played
	}
	t.Parallel()
	real := realServer(t)
	real.namespace = fmt.Sprintf("conversation-%d-%d", os.Getpid(), conversations.Add(1))
	p := &player{requester: real}
	return p.play(conversation)
}

var conversations atomic.Int64

// realServer returns a requester for the server of -kubeconfig.
func realServer(t *testing.T) requester {
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(transport) })
	return requester{t: t, transport: transport, host: config.Host}
}

// recordedKinds are the kinds of conversations, with all rules that the simulated server has.
func recordedKinds(t *testing.T) []apiserver.Kind {
	definition, err := os.ReadFile("testdata/kinds/gadgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	gadget, err := apiserver.FromCRD(definition, "")
	if err != nil {
		t.Fatal(err)
	}
	kinds := []apiserver.Kind{apiserver.Events(), widgetKind, gadget}
	for _, obj := range []runtime.Object{
		&corev1.Namespace{}, &corev1.ConfigMap{}, &appsv1.Deployment{}, &coordinationv1.Lease{},
		// Without their defaults and validation: only the names and fields that they have.
		&corev1.Node{}, &corev1.PersistentVolume{}, &corev1.Pod{}, &corev1.ReplicationController{}, &corev1.Secret{},
		&corev1.Service{}, &batchv1.Job{}, &certificatesv1.CertificateSigningRequest{}, &rbacv1.Role{},
		&rbacv1.ClusterRole{},
	} {
		kinds = append(kinds, apiserver.KindOf(obj, scheme.Scheme))
	}
	return kinds
}

// A player plays one conversation in a namespace of its own, and gives names to what differs between servers.
type player struct {
	requester
	versions []uint64          // Of objects, in order.
	names    map[string]string // Of uids, tokens and generated names.
	seen     map[string][]byte // Objects, by kind and name.
	lines    []string
}

func (p *player) play(conversation string) string {
	p.names, p.seen = map[string]string{}, map[string][]byte{}
	_, begun := p.do(fmt.Sprintf(`POST namespaces {"metadata":{"name":%q}}`, p.namespace))
	p.note(begun)
	p.named(begun)
	var watches []func()
	for line := range strings.Lines(conversation) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, " ") {
			continue // An answer of before.
		}
		p.lines = append(p.lines, line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		request := p.resolve(line)
		if strings.HasPrefix(line, "WATCH") || strings.Contains(line, "resourceVersion") {
			p.settle(line)
		}
		response := p.send(request)
		if strings.HasPrefix(line, "WATCH") && response.StatusCode == http.StatusOK {
			watches = append(watches, p.follow(line, response))
			continue
		}
		p.answer(response)
	}
	for _, end := range watches {
		end()
	}
	return strings.Join(p.lines, "\n")
}

// settle makes a real server fill its cache, from which it may answer.
func (p *player) settle(line string) {
	_, path, _ := strings.Cut(line, " ")
	resource, _, _ := strings.Cut(path, "?")
	resource, _, _ = strings.Cut(resource, "/")
	if resource != "" {
		p.do("GET " + resource)
	}
}

var symbol = regexp.MustCompile(`\$(V|UID|TOKEN|GEN)\d+`)

// resolve replaces the names in a request by what they stand for.
func (p *player) resolve(request string) string {
	request = strings.ReplaceAll(request, "$NAMESPACE", p.namespace)
	return symbol.ReplaceAllStringFunc(request, func(name string) string {
		if place, is := strings.CutPrefix(name, "$V"); is {
			i, _ := strconv.Atoi(place) // The expression has digits only.
			if i > len(p.versions) {
				p.t.Fatalf("%s: there are %d versions", request, len(p.versions))
			}
			return strconv.FormatUint(p.versions[i-1], 10)
		}
		for value, of := range p.names {
			if of == name {
				return value
			}
		}
		p.t.Fatalf("%s: %s has not been seen", request, name)
		return ""
	})
}

// answer adds the answer to a request.
func (p *player) answer(response *http.Response) {
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	line := "  " + strconv.Itoa(response.StatusCode)
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		p.t.Fatal(err)
	}
	if media != "application/json" {
		line += " " + media
	}
	var body any
	if err := yaml.Unmarshal(content, &body); err != nil || media == "text/plain" {
		body = strings.TrimSpace(string(content))
	}
	if response.Request.URL.Query().Get("dryRun") == "" {
		p.note(body)
	}
	for _, warning := range response.Header.Values("Warning") {
		p.lines = append(p.lines, "  warning "+p.text("", strings.TrimPrefix(warning, "299 - ")))
	}
	p.lines = append(p.lines, line+" "+p.shown(body, p.seen))
}

// follow reads the events of a watch. The function that it returns adds them after the request, when the watch has
// ended.
func (p *player) follow(request string, response *http.Response) (end func()) {
	var events []map[string]any
	done := make(chan error, 1)
	go func() {
		defer response.Body.Close()
		for decoder := json.NewDecoder(response.Body); ; {
			var event map[string]any
			if err := decoder.Decode(&event); err != nil {
				done <- err
				return
			}
			events = append(events, event)
		}
	}()
	return func() {
		// A real server ends some watches in the middle of the last chunk.
		if err := <-done; !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) &&
			!errors.Is(err, context.Canceled) {
			p.t.Error(err)
		}
		seen, lines := map[string][]byte{}, []string{}
		for _, event := range events {
			object, _ := event["object"].(map[string]any)
			metadata, _ := object["metadata"].(map[string]any)
			if event["type"] == "BOOKMARK" && metadata["annotations"] == nil {
				continue // A real server sends these at times of its own.
			}
			lines = append(lines, fmt.Sprintf("  %s %s", event["type"], p.shown(object, seen)))
		}
		at := slices.Index(p.lines, request) + 1
		p.lines = slices.Insert(p.lines, at, lines...)
	}
}

// note remembers the versions of the objects in an answer.
func (p *player) note(value any) {
	switch value := value.(type) {
	case map[string]any:
		metadata, _ := value["metadata"].(map[string]any)
		text, _ := metadata["resourceVersion"].(string)
		version, err := strconv.ParseUint(text, 10, 64)
		if i, found := slices.BinarySearch(p.versions, version); err == nil && metadata["uid"] != nil && !found {
			p.versions = slices.Insert(p.versions, i, version)
		}
		for _, inner := range value {
			p.note(inner)
		}
	case []any:
		for _, inner := range value {
			p.note(inner)
		}
	}
}

// shown describes a body. Of an object that was seen before it has the changes.
func (p *player) shown(body any, seen map[string][]byte) string {
	tree := p.named(body)
	object, ok := tree.(map[string]any)
	if !ok {
		return encode(p.t, tree)
	}
	if object["kind"] == "Status" && object["status"] == "Failure" {
		for _, key := range []string{"kind", "apiVersion", "metadata", "status", "code"} { // Always the same.
			delete(object, key)
		}
		return encode(p.t, object)
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata["uid"] == nil {
		return encode(p.t, object)
	}
	key := fmt.Sprint(object["kind"], object["apiVersion"], metadata["name"])
	before, now := seen[key], []byte(encode(p.t, object))
	seen[key] = now
	if before == nil {
		return string(now)
	}
	changes, err := jsonpatch.CreateMergePatch(before, now)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(changes)
}

func encode(t *testing.T, tree any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// named returns a body in which names stand for what differs between servers. Nobody can see managed fields.
func (p *player) named(body any) any { return p.namedIn("", body) }

func (p *player) namedIn(key string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		named := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if key != "managedFields" {
				named[key] = p.namedIn(key, value[key])
			}
		}
		if version, is := value["resourceVersion"].(string); is {
			named["resourceVersion"] = p.version(version, value["uid"] != nil)
		}
		sortCauses(named)
		return named
	case []any:
		named := make([]any, len(value))
		for i, element := range value {
			named[i] = p.namedIn(key, element)
		}
		return named
	case string:
		return p.text(key, value)
	}
	return value
}

// sortCauses sorts the causes of an error, and removes them from its message, which repeats them: a real server has
// some of them in the random order of a map.
func sortCauses(status map[string]any) {
	details, _ := status["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	if len(causes) > 1 {
		slices.SortFunc(causes, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		status["message"], _, _ = strings.Cut(fmt.Sprint(status["message"]), ": [")
	}
}

// version returns the name of a version.
func (p *player) version(version string, ofObject bool) string {
	number, err := strconv.ParseUint(version, 10, 64)
	if err != nil || number < p.versions[0] {
		return version
	}
	i, found := slices.BinarySearch(p.versions, number)
	if found && ofObject {
		return fmt.Sprintf("$V%d", i+1)
	}
	if found {
		i++
	}
	return fmt.Sprintf("$V%d+", i)
}

var (
	uid       = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	generated = regexp.MustCompile(`\bgen-[a-z0-9]{5}\b`)
	age       = regexp.MustCompile(`^(\d+[smhdy])+$`)
	current   = regexp.MustCompile(`current: \d+`)
	stored    = regexp.MustCompile(`(ResourceVersion in (?:record \(|object meta: ))(\d+)`)
	quoted    = regexp.MustCompile(`Invalid value: "(\{|map\[).*[}\]]": `)
)

func (p *player) text(key, value string) string {
	switch key {
	case "creationTimestamp", "deletionTimestamp":
		return "$TIME"
	case "continue":
		return p.name("TOKEN", value)
	case "cells":
		if age.MatchString(value) {
			return "$AGE"
		}
	case "message":
		value = quoted.ReplaceAllString(value, "Invalid value: $$OBJECT: ")
		value = current.ReplaceAllString(value, "current: $$V")
		value = stored.ReplaceAllStringFunc(value, func(match string) string {
			parts := stored.FindStringSubmatch(match)
			return parts[1] + p.version(parts[2], true)
		})
	}
	value = strings.ReplaceAll(value, p.namespace, "$NAMESPACE")
	value = generated.ReplaceAllStringFunc(value, func(match string) string { return p.name("GEN", match) })
	return uid.ReplaceAllStringFunc(value, func(match string) string { return p.name("UID", match) })
}

// name returns the name of a value of this class, which it gives to a new one.
func (p *player) name(class, value string) string {
	if value == "" {
		return ""
	}
	if p.names[value] == "" {
		n := 1
		for _, name := range p.names {
			if strings.HasPrefix(name, "$"+class) {
				n++
			}
		}
		p.names[value] = fmt.Sprintf("$%s%d", class, n)
	}
	return p.names[value]
}
