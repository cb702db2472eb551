package telemetry_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/client-go/features"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/telemetry"
)

// flagsVariable is the environment variable with the flags of a child process. Logging can be set up only once in a
// process, so each test starts the test binary again as a child.
const flagsVariable = "TELEMETRY_TEST_FLAGS"

// levelVariable is the environment variable with the level that the child sets after it has parsed its flags.
const levelVariable = "TELEMETRY_TEST_LEVEL"

// errorVariable is the environment variable with the error with which the child ends.
const errorVariable = "TELEMETRY_TEST_ERROR"

func TestMain(m *testing.M) {
	if flags, ok := os.LookupEnv(flagsVariable); ok {
		logSomething(strings.Fields(flags))
		return
	}
	os.Exit(m.Run())
}

func logSomething(args []string) {
	fs := flag.NewFlagSet("", flag.ExitOnError)
	apply := telemetry.AddLogFlags(fs)
	err := fs.Parse(args)
	if err == nil {
		err = apply()
	}
	if err != nil {
		klog.Background().Error(err, "Cannot log")
		os.Exit(1)
	}
	if level, ok := os.LookupEnv(levelVariable); ok {
		if err := telemetry.SetLogLevel(level); err != nil {
			klog.Background().Error(err, "Cannot set the level")
		}
	}
	features.FeatureGates().Enabled(features.WatchListClient) // Every client reads its feature gates.
	klog.Background().Info("Logged")
	klog.Background().V(2).Info("Logged in detail")
	klog.Flush()
	if text := os.Getenv(errorVariable); text != "" {
		telemetry.LastLine("program", errors.New(text))
	}
}

// logWith returns the log of a process with these flags.
func logWith(t *testing.T, flags, env string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), flagsVariable+"="+flags, env)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	err := cmd.Run()
	return log.String(), err
}

func TestFlagsHaveAnEffect(t *testing.T) {
	for _, test := range []struct {
		flags, env string
		want       []string // A part of each line.
	}{
		{flags: "", want: []string{`"Logged"`}},
		{flags: "-v=2", want: []string{`"Logged"`, `"Logged in detail"`}}, // But no feature gates.
		{flags: "-vmodule=flags_test=2", want: []string{`"Logged"`, `"Logged in detail"`}},
		{flags: "-logging-format=json", want: []string{`"msg":"Logged"`}},
		{flags: "-v=2", env: "KUBE_FEATURE_WatchListClient=perhaps",
			want: []string{"Could not set feature gate", `"Logged"`, `"Logged in detail"`}},
		{flags: "", env: errorVariable + "=no cluster", want: []string{`"Logged"`, "program: no cluster"}},
		{flags: "-logging-format=json", env: errorVariable + "=no cluster",
			want: []string{`"msg":"Logged"`, `"msg":"Exiting","err":"no cluster"}`}},
		{flags: "", env: levelVariable + "=2", want: []string{`"Logged"`, `"Logged in detail"`}},
		{flags: "-v=2", env: levelVariable + "=0", want: []string{`"Logged"`}},
		{flags: "-logging-format=json", env: levelVariable + "=2", want: []string{`"Logged"`, `"Logged in detail"`}},
		{flags: "-v=2", env: levelVariable + "=high",
			want: []string{`is no level of the log; give a number such as 0, 2 or 4"`, `"Logged"`, `"Logged in detail"`}},
	} {
		log, err := logWith(t, test.flags, test.env)
		if err != nil {
			t.Errorf("%q: %v", test.flags, err)
		}
		lines := strings.Split(strings.TrimSpace(log), "\n")
		for i, want := range test.want {
			if len(lines) != len(test.want) || !strings.Contains(lines[i], want) {
				t.Errorf("%q: want %d lines, one with %s:\n%s", test.flags, len(test.want), want, log)
			}
		}
	}
}

func TestAnUnknownFormatIsAnError(t *testing.T) {
	if log, err := logWith(t, "-logging-format=xml", ""); err == nil || !strings.Contains(log, "Unsupported log format") {
		t.Errorf("ended with %v:\n%s", err, log)
	}
}
