package trim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestArraysOfManagedFieldsBecomeNullAndNothingElseChanges(t *testing.T) {
	deep := strings.Repeat(`{"f:a":`, 20_000) + `{}` + strings.Repeat(`}`, 20_000)
	tests := []struct {
		name, in string
		want     string // Empty if it is equal to in.
	}{
		{name: "no document", in: ``},
		{name: "no managed fields", in: `{"metadata":{"name":"web"},"spec":{"list":[1,[2],{"a":[3]}]}}` + "\n"},
		{
			name: "an object",
			in:   `{"metadata":{"name":"web","managedFields":[{"manager":"m"}]},"spec":{"replicas":1}}`,
			want: `{"metadata":{"name":"web","managedFields":null},"spec":{"replicas":1}}`,
		},
		{name: "an empty array", in: `{"managedFields":[]}`, want: `{"managedFields":null}`},
		{
			name: "deeper than a decoder reads",
			in:   `{"managedFields":[{"fieldsV1":` + deep + `}],"a":1}`, want: `{"managedFields":null,"a":1}`,
		},
		{
			name: "a list", in: `{"items":[{"managedFields":[1]},{"managedFields":[2]}]}`,
			want: `{"items":[{"managedFields":null},{"managedFields":null}]}`,
		},
		{
			name: "watch events",
			in:   "{\"object\":{\"managedFields\":[1]}}\n{\"object\":{\"managedFields\":[2]}}\n",
			want: "{\"object\":{\"managedFields\":null}}\n{\"object\":{\"managedFields\":null}}\n",
		},
		{
			name: "white space", in: "{\n\t\"managedFields\" \r\n: \t[\n1 ] ,\n\"a\" : [ 1 ]\n}",
			want: "{\n\t\"managedFields\" \r\n: \tnull ,\n\"a\" : [ 1 ]\n}",
		},
		{
			name: "arrays, objects and managed fields in an array",
			in:   `{"managedFields":[[{"managedFields":[1],"a":{}}],{"managedFields":{}},[]],"managedFields":[1],"a":[1]}`,
			want: `{"managedFields":null,"managedFields":null,"a":[1]}`,
		},
		{
			name: "brackets, quotes and backslashes in strings of an array",
			in:   `{"managedFields":["]","}]","\"]","\\","\\\"]",{"]":"["}],"a":"\\","managedFields":[1]}`,
			want: `{"managedFields":null,"a":"\\","managedFields":null}`,
		},
		{name: "an annotation", in: `{"annotations":{"managedFields":"[1]"},"a":[1]}`},
		{name: "an object", in: `{"managedFields":{"a":[1]},"a":[1]}`},
		{name: "other values", in: `{"managedFields":null,"a":[{"managedFields":1},[1],{"managedFields":true},[1]]}`},
		{name: "a value and not a key", in: `["managedFields",[1],{"a":"managedFields","b":[1]},"managedFields"]`},
		{name: "other keys", in: `{"managedField":[1],"managedFieldss":[2],"xmanagedFields":[3],"":[4],"managedfields":[5]}`},
		{
			name: "keys with escapes",
			in:   `{"\"managedFields":[1],"managedFields\"":[2],"\\managedFields":[3],"managedFields\\":[4]}`,
		},
		{name: "a key whose letters are escaped", in: `{"\u006danagedFields":[1]}`},
		{name: "a quoted document", in: `{"annotations":{"last-applied":"{\"metadata\":{\"managedFields\":[1]}}"}}`},
		{name: "a document that ends too early", in: `{"managedFields":[{"a":[1]},`, want: `{"managedFields":null`},
		{name: "text", in: `not found: "managedFields" ] } : [1]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := test.want
			if want == "" {
				want = test.in
			}
			for name, in := range map[string]io.Reader{
				"at once":         strings.NewReader(test.in),
				"byte by byte":    iotest.OneByteReader(strings.NewReader(test.in)),
				"with its end":    iotest.DataErrReader(strings.NewReader(test.in)),
				"in random parts": &randomReader{from: strings.NewReader(test.in), random: rand.New(rand.NewPCG(1, 2))},
			} {
				if got := filtered(t, in); got != want {
					t.Errorf("%s: %.200q, want %.200q", name, got, want)
				}
			}
			if got := filtered(t, strings.NewReader(test.in), iotest.OneByteReader); got != want {
				t.Errorf("read byte by byte: %.200q, want %.200q", got, want)
			}
		})
	}
}

// filtered returns what can be read of in without managed fields, through the given readers.
func filtered(t *testing.T, in io.Reader, through ...func(io.Reader) io.Reader) string {
	t.Helper()
	var reader io.Reader = newBody(io.NopCloser(in))
	for _, wrap := range through {
		reader = wrap(reader)
	}
	out, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A randomReader returns between nothing and 20 bytes at a time.
type randomReader struct {
	from   io.Reader
	random *rand.Rand
}

func (r *randomReader) Read(p []byte) (int, error) {
	n := r.random.IntN(21)
	if n == 0 {
		return 0, nil
	}
	return r.from.Read(p[:min(n, len(p))])
}

func TestAReadThatPassesNothingOnWaitsForMore(t *testing.T) {
	parts := []string{`{"managedFields":`, `[`, `1,`, ``, `2`, `]`, `}`}
	reader := newBody(io.NopCloser(io.MultiReader(oneAtATime(parts)...)))
	var reads []string
	p := make([]byte, 100)
	for {
		n, err := reader.Read(p)
		if err == io.EOF {
			break
		}
		reads = append(reads, string(p[:n]))
	}
	if diff := cmp.Diff([]string{parts[0], "null", "}"}, reads); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
	if n, err := reader.Read(nil); n != 0 || err != nil {
		t.Errorf("a read of no bytes returns %d, %v", n, err)
	}
}

func oneAtATime(parts []string) []io.Reader {
	var readers []io.Reader
	for _, part := range parts {
		readers = append(readers, strings.NewReader(part))
	}
	return readers
}

func TestAnErrorIsPassedOnAfterWhatCameBeforeIt(t *testing.T) {
	cut := errors.New("cut")
	for in, want := range map[string]string{
		`{"a":[1],"managed`:           `{"a":[1],"managed`,
		`{"managedFields":[{"a":"b\`:  `{"managedFields":null`,
		`{"managedFields":[1],"a":[1`: `{"managedFields":null,"a":[1`,
	} {
		for _, from := range []io.Reader{
			io.MultiReader(strings.NewReader(in), iotest.ErrReader(cut)),
			iotest.DataErrReader(io.MultiReader(strings.NewReader(in), iotest.ErrReader(cut))),
		} {
			reader := newBody(io.NopCloser(from))
			got, err := io.ReadAll(reader)
			_, again := reader.Read(make([]byte, 1))
			if string(got) != want || err != cut || again != cut {
				t.Errorf("%s: read %q, %v, and then %v; want %q, and the error twice", in, got, err, again, want)
			}
		}
	}
}

func TestMemoryDoesNotGrowWithTheLengthOfAResponse(t *testing.T) {
	p := make([]byte, bufferSize)
	for _, repeated := range []string{`[{"a":"b",`, `"managedFields":[1],`, `aaaaa`} {
		allocations := func(buffers int64) float64 {
			return testing.AllocsPerRun(1, func() {
				start := strings.NewReader(`{"managedFields":`)
				in := io.MultiReader(start, io.LimitReader(&endless{text: repeated}, buffers*bufferSize))
				reader := newBody(io.NopCloser(in))
				for err := error(nil); err == nil; {
					_, err = reader.Read(p)
				}
			})
		}
		// One for each buffer would be 99 more. Single ones may be those of other goroutines.
		if short, long := allocations(1), allocations(100); long > short+10 {
			t.Errorf("%s: %.0f allocations for a short response, %.0f for a long one", repeated, short, long)
		}
	}
}

// endless is a text that is repeated for ever.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

// escapedLetter matches a letter that is written as an escape. A decoder finds the key then, the scanner does not.
var escapedLetter = regexp.MustCompile(`\\u00[4-7]`)

// check fails unless a decoder reads the same from in with and without managed fields, except for these.
func check(t *testing.T, in []byte, seed uint64) {
	t.Helper()
	parts := &randomReader{from: bytes.NewReader(in), random: rand.New(rand.NewPCG(seed, 0))}
	out := filtered(t, parts)
	if !bytes.Contains(in, []byte(`"managedFields"`)) && out != string(in) {
		t.Fatalf("%q became %q", in, out)
	}
	var before, after any
	if json.Unmarshal(in, &before) != nil || escapedLetter.Match(in) {
		return
	}
	if err := json.Unmarshal([]byte(out), &after); err != nil {
		t.Fatalf("%q became %q: %v", in, out, err)
	}
	if diff := cmp.Diff(without(before), after); diff != "" {
		t.Fatalf("%q became %q (-want +got):\n%s", in, out, diff)
	}
}

// without returns value without managed fields.
func without(value any) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = without(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = without(value[name])
		}
		if _, isArray := value[key].([]any); isArray {
			value[key] = nil
		}
	}
	return value
}

func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"managedFields":[{"a":["]"]}],"managedFields":{"managedFields":[]}}`, `["managedFields",[1]]`,
		`{"\"managedFields":[1],"managedFields\\":["\\"], "managedFields" : [ ] }`, `{"\u006danagedFields":[1]}`, `{"a":"\`,
	} {
		f.Add([]byte(seed), uint64(1))
	}
	f.Fuzz(check)
}

func TestADecoderReadsTheSameFromRandomDocumentsExceptForManagedFields(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		document, err := json.Marshal(randomValue(random, 5))
		if err == nil && random.IntN(2) == 0 {
			indented := &bytes.Buffer{}
			err = json.Indent(indented, document, "\r", " \t")
			document = indented.Bytes()
		}
		if err != nil {
			t.Fatal(err)
		}
		check(t, document, seed)
	}
}

func randomValue(random *rand.Rand, levels int) any {
	kind := random.IntN(5)
	switch {
	case levels == 0 || kind == 0:
		return randomString(random)
	case kind == 1:
		return random.IntN(100)
	case kind == 2:
		array := []any{}
		for range random.IntN(4) {
			array = append(array, randomValue(random, levels-1))
		}
		return array
	}
	object := map[string]any{}
	for range random.IntN(5) {
		object[randomString(random)] = randomValue(random, levels-1)
	}
	return object
}

func randomString(random *rand.Rand) string {
	words := []string{key, key, key, key, "managed", `"`, `\`, `]`, `[`, `{`, `}`, `:`, ` `, "\u2028", "<", "é"}
	text := words[random.IntN(len(words))]
	for random.IntN(3) == 0 {
		text += words[random.IntN(len(words))]
	}
	return text
}

// The list has 1,000 Foos such as those that kubectl creates.
func BenchmarkRead(b *testing.B) {
	foo := `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"generation":1,"managedFields":[` +
		`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{` +
		`"f:annotations":{".":{},"f:note":{}}},"f:spec":{".":{},"f:deploymentName":{},"f:replicas":{}}},` +
		`"manager":"kubectl-create","operation":"Update","time":"2026-01-31T12:00:00Z"}],"name":"web-1",` +
		`"namespace":"default","resourceVersion":"1234","uid":"3f0f0a44-3b0c-4b7e-9f0e-0c7b7a3e2f11"},` +
		`"spec":{"deploymentName":"web-1","replicas":2},"status":{"availableReplicas":2,"conditions":[` +
		`{"lastTransitionTime":"2026-01-31T12:00:00Z","message":"2 of 2 replicas are available",` +
		`"observedGeneration":1,"reason":"Available","status":"True","type":"Ready"}]}}`
	list := fmt.Appendf(nil, `{"kind":"FooList","items":[%s{}]}`, strings.Repeat(foo+",", 1000))
	b.SetBytes(int64(len(list)))
	for b.Loop() {
		reader := newBody(io.NopCloser(bytes.NewReader(list)))
		if _, err := io.Copy(io.Discard, reader); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(list)), "ns/byte")
}
