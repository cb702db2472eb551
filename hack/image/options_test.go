package main

import (
	"errors"
	"flag"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

func TestHelpNamesEveryFlagAndFile(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), []string{"--help"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, word := range []string{
		"-output", "-platforms", "-name", "-version", "layout/", ".tar", ".spdx.json", "sbom/", "SOURCE_DATE_EPOCH",
	} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("--help does not mention %s", word)
		}
	}
}

func TestDefaultsAreBothPlatformsInBinImage(t *testing.T) {
	opts, err := parse(nil, "/root-of-repository", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if opts.output != "/root-of-repository/bin/image" || len(opts.platforms) != 2 ||
		opts.platforms[0].String() != "linux/amd64" || opts.platforms[1].String() != "linux/arm64" {
		t.Errorf("%+v", opts)
	}
}

func TestMistakesInFlagsAreReported(t *testing.T) {
	for args, want := range map[string]string{
		"--platforms windows/amd64":           "neither linux/amd64 nor linux/arm64",
		"--platforms linux/amd64,linux/amd64": "twice",
		"--unknown":                           "not defined",
		"bin/image":                           "unexpected argument",
	} {
		_, err := parse(strings.Fields(args), ".", io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func TestNamesAreThoseOfTheKubelet(t *testing.T) {
	for image, want := range map[string]string{
		"foo-controller":              "docker.io/library/foo-controller:v1",
		"me/foo-controller":           "docker.io/me/foo-controller:v1",
		"registry.example:5000/a/foo": "registry.example:5000/a/foo:v1",
		"localhost/foo":               "localhost/foo:v1",
	} {
		got, err := fullName(image, "v1")
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", image, got, err, want)
		}
	}
	if _, err := fullName("foo-controller", "v1+meta"); err == nil {
		t.Error("a version that cannot be a tag was accepted")
	}
}

func TestOtherFilesAreNotReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := checkReplaceable(dir); err != nil {
		t.Error("empty directory:", err)
	}
	if err := checkReplaceable(filepath.Join(dir, "missing")); err != nil {
		t.Error("missing directory:", err)
	}
	writeFile(t, filepath.Join(dir, "thesis.txt"), "")
	if err := checkReplaceable(dir); err == nil {
		t.Error("a directory with other files would be deleted")
	}
}

func TestTheSourceIsThatOfGit(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "")
	src, err := describe(t.Context(), dir, "")
	if err != nil || src.version != "unknown" || src.revision != "" || src.created.Unix() != 0 {
		t.Errorf("without git: %+v, %v", src, err)
	}
	file := filepath.Join(dir, "file")
	writeFile(t, file, "one")
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-31T12:00:00Z")
	commit(t, dir, "v1.2.3")
	src, err = describe(t.Context(), dir, "")
	if err != nil || src.version != "v1.2.3" || len(src.revision) != 40 || src.created.Unix() != 1769860800 {
		t.Errorf("of a commit: %+v, %v", src, err)
	}
	writeFile(t, file, "two")
	t.Setenv("SOURCE_DATE_EPOCH", "7")
	src, err = describe(t.Context(), dir, "")
	if err != nil || src.version != "v1.2.3-dirty" || src.revision != "" || src.created.Unix() != 7 {
		t.Errorf("of changed files: %+v, %v", src, err)
	}
}
