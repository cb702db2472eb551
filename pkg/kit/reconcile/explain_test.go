package reconcile_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// The answers are those of the next request. At the end of a sync, they are about what it did and what it has left.
// Explain changes nothing.
func TestExplain(t *testing.T) {
	both := toCorrect()
	both.Old = old("old")
	paused := toCorrect()
	paused.Team = newTeam(annotated("paused"))
	reported := toReport()
	reported.Team = newTeam(func(t *corev1.Namespace) { t.Status.Phase = "Ready" })
	const (
		notPaused, notBroken = "paused: does not apply: somebody has set it", "broken: does not apply: somebody has set it"
		exists, n1           = "create: does not apply: it exists", "patch: does not apply: n is 1"
		noneOld              = "delete old: does not apply: the child is ready"
	)
	later := func(rule string, rules ...string) (answers []string) {
		for _, name := range rules {
			answers = append(answers, name+": not reached: "+rule+" comes first")
		}
		return answers
	}
	for _, test := range []struct {
		name    string
		setting setting
		played  bool
		want    []string
	}{
		{
			name: "a write", setting: setting{desk: toCreate()},
			want: append([]string{notPaused, notBroken, "*create: sends create ConfigMap team/child: there is none"},
				later("create", "patch", "delete old", "update status")...),
		},
		{
			name: "a read before it", setting: setting{desk: toCreateAgain()},
			want: append([]string{
				notPaused, notBroken,
				"*create: sends get Namespace team first, and then create ConfigMap team/child: there is none",
			}, later("create", "patch", "delete old", "update status")...),
		},
		{
			name:    "a write that backs off, and rules behind it",
			setting: setting{desk: toCorrect(), memory: remembers(ledger{patchOp: failed(1499600 * time.Microsecond)})},
			want: []string{
				notPaused, notBroken, exists, "patch: patch ConfigMap team/child backs off for 1.5s: n is 9", noneOld,
				"*update status: sends update status of Namespace team: the status differs",
			},
		},
		{
			name: "a final rule", setting: setting{desk: paused},
			want: append(append([]string{"paused: applies: somebody has set it"},
				later("paused", "broken", "create", "patch", "delete old")...),
				"*update status: sends update status of Namespace team: the status differs"),
		},
		{
			name: "nothing", setting: setting{desk: reported},
			want: []string{notPaused, notBroken, exists, n1, noneOld,
				"update status: does not apply: the status is as it must be"},
		},
		{
			name: "after a sync that has done all", setting: setting{desk: both}, played: true,
			want: []string{notPaused, notBroken, exists, "patch: done in this sync", "delete old: done in this sync",
				"update status: done in this sync"},
		},
		{
			name: "after one with refusals", played: true,
			setting: setting{desk: both, replies: []reply{fails("patch child", forbidden), fails("report", forbidden)}},
			want: []string{notPaused, notBroken, exists, "patch: failed in this sync: n is 9",
				"delete old: done in this sync", "update status: failed in this sync: the status differs"},
		},
		{
			name: "after one with a conflict", played: true,
			setting: setting{desk: toDelete(), replies: []reply{fails("delete old", conflict)}},
			want: append([]string{notPaused, notBroken, exists, n1, "delete old: failed in this sync: the child is ready"},
				later("delete old", "update status")...),
		},
		{
			name: "after one that has ended early", played: true,
			setting: setting{desk: toCreateAgain(), replies: []reply{finds("get team", nil)}},
			want: append([]string{notPaused, notBroken, "create: not sent in this sync: there is none"},
				later("create", "patch", "delete old", "update status")...),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sync *reconcile.Sync
			if in := test.setting.desk; test.played {
				sync = play(t, test.setting).sync
			} else {
				sync = desks.Sync(&in)
				sync.Begin(test.setting.memory, start, 0)
			}
			for range 2 { // The second time shows that the first has changed nothing.
				var got []string
				for _, e := range sync.Explain() {
					answer := e.Rule + ": " + e.Answer
					if e.Sends {
						answer = "*" + answer
					}
					got = append(got, answer)
				}
				check(t, test.want, got)
			}
		})
	}
}
