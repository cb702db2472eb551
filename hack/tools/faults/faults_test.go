package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = `# A comment
# with - and +.

a sum is wrong
in sum/sum.go
-	return a + b
+	return a - b

a line is missing
in sum/sum.go
-	check(a)
-	check(b)
+
`

func TestFaultsAreRead(t *testing.T) {
	have, err := Read(write(t, example))
	want := []Fault{
		{Name: "a sum is wrong", File: "sum/sum.go", Before: "\treturn a + b", After: "\treturn a - b"},
		{Name: "a line is missing", File: "sum/sum.go", Before: "\tcheck(a)\n\tcheck(b)"},
	}
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Errorf("%v (-want +have):\n%s", err, diff)
	}
}

func TestAllMistakesAreReported(t *testing.T) {
	_, err := Read(write(t, strings.Join([]string{
		"good\nin a.go\n-a\n+b", "good\nin a.go\n-a\n+b", "no file\n-a\n+b", "no change\nin a.go\n-a\n+a",
		"two files\nin a.go\nin b.go\n-a\n+b", "-no name\n+x",
	}, "\n\n")))
	for _, want := range []string{
		`"good": another fault has this name`, `"no file": a fault has a name`, `"no change": a fault has a name`,
		`"two files": unexpected line: "in b.go"`, `"": a fault has a name`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %s: %v", want, err)
		}
	}
}

func TestAFaultIsAppliedToATextThatIsThereOnce(t *testing.T) {
	f := Fault{File: "a.go", Before: "b", After: "x"}
	if have, err := f.Apply([]byte("abc")); err != nil || string(have) != "axc" {
		t.Errorf("got %q, %v", have, err)
	}
	for source, want := range map[string]string{
		"ac": "a.go has its text 0 times, not once:\nb", "abb": "a.go has its text 2 times, not once:\nb",
	} {
		if _, err := f.Apply([]byte(source)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", source, err, want)
		}
	}
}

func TestAnOverlayReplacesFilesOfTheRoot(t *testing.T) {
	dir := t.TempDir()
	file, err := Overlay("/module", dir, "one", map[string][]byte{"sum/sum.go": []byte("package sum\n")})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		t.Fatal(err)
	}
	replacement, err := os.ReadFile(overlay.Replace["/module/sum/sum.go"])
	if err != nil || string(replacement) != "package sum\n" {
		t.Errorf("%s is replaced by %q: %v", text, replacement, err)
	}
}

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "faults.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
