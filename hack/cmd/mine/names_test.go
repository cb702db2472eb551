package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNouns(t *testing.T) {
	for _, test := range []struct{ kind, plural, many, camel, camels, lowers string }{
		{kind: "Gateway", many: "Gateways", camel: "gateway", camels: "gateways", lowers: "gateways"},
		{kind: "Shelf", many: "Shelves", camel: "shelf", camels: "shelves", lowers: "shelves"},
		{kind: "Mailbox", many: "Mailboxes", camel: "mailbox", camels: "mailboxes", lowers: "mailboxes"},
		{
			kind: "CacheCluster", many: "CacheClusters",
			camel: "cacheCluster", camels: "cacheClusters", lowers: "cacheclusters",
		},
		{kind: "DNSRecord", many: "DNSRecords", camel: "dnsRecord", camels: "dnsRecords", lowers: "dnsrecords"},
		{kind: "S3Bucket", many: "S3Buckets", camel: "s3Bucket", camels: "s3Buckets", lowers: "s3buckets"},
		{kind: "Person", plural: "people", many: "People", camel: "person", camels: "people", lowers: "people"},
		{
			kind: "CacheIndex", plural: "cacheindices", many: "CacheIndices",
			camel: "cacheIndex", camels: "cacheIndices", lowers: "cacheindices",
		},
	} {
		t.Run(test.kind, func(t *testing.T) {
			n := newNoun(test.kind, test.plural)
			have := []string{n.many, n.camel(false), n.camel(true), n.lower(true)}
			if diff := cmp.Diff([]string{test.many, test.camel, test.camels, test.lowers}, have); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestArticles(t *testing.T) {
	const words = "a Gateway, an Index, an HTTPRoute, a DNSRecord, an LDAPServer, an S3Bucket, an IP, a URL, an " +
		"XMLFile, " +
		"a User, a Unit, an Uninstaller, an Upgrade, a Utility, a UrlMap, an Hour, a House, an Honor, a OneShot, " +
		"an Online, an EtcdCluster, a Euro, a VM, an SQL, a user, an upstream, an order"
	for phrase := range strings.SplitSeq(words, ", ") {
		want, word, _ := strings.Cut(phrase, " ")
		if have := article(word); have != want {
			t.Errorf("%s %s, want %s", have, word, want)
		}
	}
}

// names returns the renamer of a starter for a kind.
func names(kind, plural string) *renamer {
	o := &order{kind: newNoun(kind, plural), group: "my-db.example.org", version: "v1beta2",
		module: "github.com/x/widget", groupDirectory: "mydb", groupName: "MyDb", kit: "git.example.org/team/kit"}
	return o.starterNames()
}

func TestNamesInGo(t *testing.T) {
	r := names("CacheIndex", "cacheindices")
	for old, want := range map[string]string{
		"widget": "cacheIndex", "widgets": "cacheIndices", "Widget": "CacheIndex", "Widgets": "CacheIndices",
		"newWidget": "newCacheIndex", "WidgetLister": "CacheIndexLister", "widgetGVR": "cacheIndexGVR",
		"WidgetStatus": "CacheIndexStatus", "widgetsSynced": "cacheIndicesSynced", "WIDGET_X": "CACHEINDEX_X",
		"widgetinformers": "cacheindexinformers", "mywidget": "mycacheindex",
		"acmev1alpha1": "mydbv1beta2", "AcmeV1alpha1": "MyDbV1beta2", "v1alpha1": "v1beta2", "v1": "v1",
		"TestAWidgetIsReady": "TestACacheIndexIsReady", "kit": "kit", "TestWidgets": "TestCacheIndices",
	} {
		if have := r.name(old); have != want {
			t.Errorf("%s becomes %s, want %s", old, have, want)
		}
	}
	if have := names("Index", "").name("TestAWidget"); have != "TestAnIndex" {
		t.Error(have)
	}
}

func TestWordsInTexts(t *testing.T) {
	r := names("ElasticIndex", "elasticindices")
	for _, test := range []struct{ name, old, want string }{
		{name: "a kind", old: "a Widget and Widgets", want: "an ElasticIndex and ElasticIndices"},
		{name: "the first word", old: "A Widget", want: "An ElasticIndex"},
		{name: "in quotation marks", old: "a \"Widget\", a `Widget`", want: "an \"ElasticIndex\", an `ElasticIndex`"},
		{name: "a pointer", old: "a *Widget", want: "an *ElasticIndex"},
		{name: "not an article", old: "plan.A Widget; a, Widget", want: "plan.A ElasticIndex; a, ElasticIndex"},
		{name: "lower case", old: "widgets of a namespace", want: "elasticindices of a namespace"},
		{name: "a resource", old: "widgets.acme.example.com", want: "elasticindices.my-db.example.org"},
		{name: "a path", old: "examples/widget.yaml and widget/web", want: "examples/elasticindex.yaml and elasticindex/web"},
		{name: "a file", old: "acme.example.com_widgets.yaml", want: "my-db.example.org_elasticindices.yaml"},
		{name: "a process", old: "widget-controller in widget-system",
			want: "elasticindex-controller in elasticindex-system"},
		{name: "a metric", old: "widget_controller_syncs", want: "elasticindex_controller_syncs"},
		{name: "a field", old: "spec.widgetsTotal", want: "spec.elasticIndicesTotal"},
		{name: "an environment variable", old: "WIDGET_DIR", want: "ELASTICINDEX_DIR"},
		{name: "another version", old: "kustomize.config.k8s.io/v1alpha1", want: "kustomize.config.k8s.io/v1alpha1"},
		{name: "its version", old: "acme.example.com/v1alpha1, AcmeV1alpha1()",
			want: "my-db.example.org/v1beta2, MyDbV1beta2()"},
		{name: "a directory", old: "pkg/apis/acme/v1alpha1", want: "pkg/apis/mydb/v1beta2"},
		{name: "the kit", old: "example.com/foo-controller/pkg/kit/state", want: "git.example.org/team/kit/pkg/kit/state"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, r.text(test.old)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGoFilesAreFormatted(t *testing.T) {
	const old = `package p

import (
	"example.com/foo-controller/pkg/kit"
)

type T struct {
	Name string // Not empty.
	Widget *v1alpha1.Widget // A Widget.
}

// sync syncs a Widget, and "widget" is its name.
func sync(widget string) {
	print("a Widget/widgets", ` + "`a\nwidget`" + `)
}
`
	const want = `package p

import (
	"git.example.org/team/kit/pkg/kit"
)

type T struct {
	Name         string                // Not empty.
	ElasticIndex *v1beta2.ElasticIndex // An ElasticIndex.
}

// sync syncs an ElasticIndex, and "elasticindex" is its name.
func sync(elasticIndex string) {
	print("an ElasticIndex/elasticindices", ` + "`a\nelasticindex`" + `)
}
`
	r := names("ElasticIndex", "elasticindices")
	have, err := r.file("p.go", []byte(old))
	if diff := cmp.Diff(want, string(have)); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if _, err := r.file("p.go", []byte("package p; func {")); err == nil || !strings.HasPrefix(err.Error(), "p.go: ") {
		t.Errorf("a file that is not Go: %v", err)
	}
	if have, err := r.file("logo.png", []byte("\x00Widget")); string(have) != "\x00Widget" || err != nil {
		t.Errorf("a picture becomes %q, %v", have, err)
	}
}
