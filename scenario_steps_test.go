package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// steps are what can be done in a scenario, by the words that a line begins with. Of two that fit, the one
// with more words counts.
var steps = []struct {
	words string
	do    func(s *stage, args arguments) error
}{
	{"foo", (*stage).foo},
	{"delete foo", func(s *stage, args arguments) error {
		return s.cluster.delete(foosResource, args.word(0), args.has("foreground"))
	}},
	{"deployment", (*stage).deployment},
	{"copy deployment", (*stage).copyDeployment},
	{"edit deployment", func(s *stage, args arguments) error {
		return s.editAll("", args, s.editDeployment)
	}},
	{"delete deployment", func(s *stage, args arguments) error {
		return s.cluster.delete(deploymentsResource, args.word(0), args.has("foreground"))
	}},
	{"rollout", (*stage).rollout},
	{"collect garbage", func(s *stage, _ arguments) error { s.cluster.collectGarbage(); return nil }},
	{"lag", func(s *stage, args arguments) error {
		return s.caches(args, func(p *instance, resource string) { p.lags[resource] = true })
	}},
	{"catch up", func(s *stage, args arguments) error {
		return s.caches(args, func(p *instance, resource string) { p.lags[resource] = false })
	}},
	{"relist", func(s *stage, args arguments) error {
		return s.caches(args, func(p *instance, resource string) {
			p.lags[resource] = false
			p.relist(resource)
		})
	}},
	{"refuse", (*stage).refuse},
	{"lose", func(s *stage, args arguments) error { return s.lose(args, false) }},
	{"lose the answer to", func(s *stage, args arguments) error { return s.lose(args, true) }},
	{"allow", func(s *stage, _ arguments) error {
		s.cluster.refusals, s.cluster.terminating = nil, false
		return nil
	}},
	{"override", (*stage).override},
	{"stop overriding", func(s *stage, _ arguments) error { s.cluster.overrides = nil; return nil }},
	{"restart", (*stage).restart},
	{"start over", func(s *stage, _ arguments) error {
		s.close()
		s.begin()
		return nil
	}},
	{"start another", func(s *stage, args arguments) error { s.start(args.word(0)); return nil }},
	{"wait", (*stage).waitFor},
	{"wait until", (*stage).waitUntilTried},
	{"sync", (*stage).syncNow},
	{"show foo", (*stage).showFoo},
	{"show deployment", (*stage).showDeployment},
}

// step does what a line says.
func (s *stage) step(line string) error {
	i := -1
	for j, step := range steps {
		if (line == step.words || strings.HasPrefix(line, step.words+" ")) && (i < 0 || len(step.words) > len(steps[i].words)) {
			i = j
		}
	}
	if i < 0 {
		return errors.New("no such step")
	}
	args := parseArguments(strings.TrimPrefix(line, steps[i].words))
	return errors.Join(steps[i].do(s, args), args.unused())
}

// arguments are the words behind those of a step, and the values given as key=value. All must be used.
type arguments struct {
	words  []string
	values map[string]string
	used   map[string]bool
}

var argument = regexp.MustCompile(`([a-z.A-Z/0-9-]+=)?("[^"]*"|[^ ]+)`)

func parseArguments(text string) arguments {
	args := arguments{values: map[string]string{}, used: map[string]bool{}}
	for _, match := range argument.FindAllStringSubmatch(text, -1) {
		key, value := strings.TrimSuffix(match[1], "="), strings.Trim(match[2], `"`)
		if match[1] == "" {
			args.words = append(args.words, value)
			continue
		}
		args.values[key] = value
	}
	return args
}

// word returns the word at i, "" when there are fewer.
func (a arguments) word(i int) string {
	if i >= len(a.words) {
		return ""
	}
	a.used[a.words[i]] = true
	return a.words[i]
}

func (a arguments) has(word string) bool {
	a.used[word] = true
	return slices.Contains(a.words, word)
}

func (a arguments) value(key string) (string, bool) {
	a.used[key] = true
	value, ok := a.values[key]
	return value, ok
}

func (a arguments) number(key string, otherwise int32) int32 {
	text, ok := a.value(key)
	n, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil {
		return otherwise
	}
	return int32(n)
}

func (a arguments) unused() error {
	for _, word := range append(slices.Sorted(maps.Keys(a.values)), a.words...) {
		if !a.used[word] {
			return fmt.Errorf("what is %q?", word)
		}
	}
	return nil
}

// none is the value that removes what it is the value of.
const none = "-"

// editMeta edits labels and finalizers.
func editMeta(obj object, args arguments) {
	labels := maps.Clone(obj.GetLabels())
	for key, value := range args.values {
		label, ok := strings.CutPrefix(key, "label.")
		if !ok {
			continue
		}
		args.value(key)
		for _, prefix := range []string{"samplecontroller.k8s.io/", "app.kubernetes.io/"} {
			if _, known := labels[prefix+label]; known {
				label = prefix + label
			}
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[label] = value
		if value == none {
			delete(labels, label)
		}
	}
	obj.SetLabels(labels)
	if finalizer, ok := args.value("finalizer"); ok {
		obj.SetFinalizers(slices.DeleteFunc([]string{finalizer}, func(f string) bool { return f == none }))
	}
}

// foo creates a Foo, or edits the one that there is.
func (s *stage) foo(args arguments) error {
	foo := s.cluster.foo(args.word(0))
	if foo != nil {
		return s.cluster.edit(foosResource, "", foo.Name, func(obj object) { editFoo(obj.(*v1alpha1.Foo), args) })
	}
	foo = &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: args.word(0)}}
	editFoo(foo, args)
	return s.cluster.add(foosResource, foo)
}

func editFoo(foo *v1alpha1.Foo, args arguments) {
	editMeta(foo, args)
	if name, ok := args.value("deployment"); ok {
		foo.Spec.DeploymentName = name
	}
	if image, ok := args.value("image"); ok {
		foo.Spec.Image = strings.TrimPrefix(image, none)
	}
	if paused, ok := args.value("paused"); ok {
		foo.Spec.Paused = paused == "true"
	}
	if replicas, ok := args.value("replicas"); ok {
		foo.Spec.Replicas = new(args.number("replicas", 0))
		if replicas == none {
			foo.Spec.Replicas = nil
		}
	}
}

// deployment creates a Deployment as somebody other than the controller.
func (s *stage) deployment(args arguments) error {
	dep := deploymentOf(args.word(0))
	if owner, ok := args.value("owner"); ok {
		dep.Spec.Selector.MatchLabels["controller"] = owner // The Deployment's pods have the same map.
		dep.OwnerReferences = []metav1.OwnerReference{s.reference(owner, args)}
	}
	s.editDeployment(dep, args)
	return s.cluster.add(deploymentsResource, dep)
}

// reference returns an owner reference to a Foo as the controller makes it, but for what args say.
func (s *stage) reference(owner string, args arguments) metav1.OwnerReference {
	foo := s.cluster.foo(owner)
	if foo == nil {
		foo = &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: types.UID("uid-of-" + owner)}}
	}
	ref := *metav1.NewControllerRef(foo, plan.FooKind)
	if group, ok := args.value("owner.group"); ok {
		ref.APIVersion = group + "/v1"
	}
	if version, ok := args.value("owner.version"); ok {
		ref.APIVersion = v1alpha1.GroupName + "/" + version
	}
	if kind, ok := args.value("owner.kind"); ok {
		ref.Kind = kind
	}
	if uid, ok := args.value("owner.uid"); ok {
		ref.UID = types.UID(uid)
	}
	if controller, ok := args.value("owner.controller"); ok {
		ref.Controller = new(controller == "true")
	}
	return ref
}

// editAll edits the Deployments that the words of args name, or a subresource of theirs.
func (s *stage) editAll(subresource string, args arguments, edit func(object, arguments)) error {
	for i := range args.words {
		if err := s.cluster.edit(deploymentsResource, subresource, args.word(i), func(obj object) { edit(obj, args) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) editDeployment(obj object, args arguments) {
	dep := obj.(*appsv1.Deployment)
	editMeta(dep, args)
	if _, ok := args.value("replicas"); ok {
		dep.Spec.Replicas = new(args.number("replicas", 1))
	}
	if image, ok := args.value("image"); ok {
		dep.Spec.Template.Spec.Containers[0].Image = image
	}
	if paused, ok := args.value("paused"); ok {
		dep.Spec.Paused = paused == "true"
	}
	if sidecar, ok := args.value("sidecar"); ok {
		dep.Spec.Template.Spec.Containers = append(dep.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: sidecar})
	}
	if owner, ok := args.value("owner"); ok {
		dep.OwnerReferences = []metav1.OwnerReference{s.reference(owner, args)}
		if owner == none {
			dep.OwnerReferences = nil
		}
	}
}

// copyDeployment creates a Deployment from what another one looks like, under another name.
func (s *stage) copyDeployment(args arguments) error {
	dep := s.cluster.deployment(args.word(0)).DeepCopy()
	dep.Name, dep.UID, dep.Status = args.word(1), "", appsv1.DeploymentStatus{}
	return s.cluster.add(deploymentsResource, dep)
}

// rollout reports on a Deployment as the Deployment controller does: that all is there, but for what args say.
func (s *stage) rollout(args arguments) error {
	return s.editAll("status", arguments{words: []string{args.word(0)}, used: args.used}, func(obj object, _ arguments) {
		dep := obj.(*appsv1.Deployment)
		n := *dep.Spec.Replicas
		status := appsv1.DeploymentStatus{
			ObservedGeneration: dep.Generation,
			UpdatedReplicas:    args.number("updated", n),
			AvailableReplicas:  args.number("available", n),
		}
		status.ReadyReplicas = status.AvailableReplicas
		status.Replicas = args.number("replicas", max(status.UpdatedReplicas, status.AvailableReplicas))
		condition := func(has bool, kind appsv1.DeploymentConditionType, value corev1.ConditionStatus, reason string) {
			if has {
				status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{Type: kind, Status: value, Reason: reason})
			}
		}
		stuck := args.has("stuck")
		condition(stuck, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")
		// Complete once, complete until there is another pod template.
		complete := status.UpdatedReplicas >= n && (status.AvailableReplicas >= n || slices.ContainsFunc(dep.Status.Conditions, func(cond appsv1.DeploymentCondition) bool {
			return cond.Reason == "NewReplicaSetAvailable"
		}))
		condition(!stuck && complete, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
		condition(!stuck && !complete, appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated")
		condition(args.has("failing"), appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate")
		dep.Status = status
	})
}

// caches calls do for the caches that the words of args name, by resource, by controller, or both: all when
// there are none.
func (s *stage) caches(args arguments, do func(p *instance, resource string)) error {
	named := func(p *instance) bool { return args.has(p.name) }
	one := slices.ContainsFunc(s.instances, named)
	foos, deployments := args.has(foosResource), args.has(deploymentsResource)
	for _, p := range s.instances {
		if one && !named(p) {
			continue
		}
		if foos || !deployments {
			do(p, foosResource)
		}
		if deployments || !foos {
			do(p, deploymentsResource)
		}
	}
	return nil
}

// restart replaces all controllers by a new one. Caches of the first that lag go on to lag in the new one,
// as they are: an API server may be behind too.
func (s *stage) restart(arguments) error {
	s.close()
	old := s.instances[0]
	s.instances = nil
	p := s.start("")
	for resource, store := range old.stores {
		if !old.lags[resource] {
			continue
		}
		var items []any
		for _, obj := range store.List() {
			items = append(items, p.copied(obj.(object)))
		}
		p.lags[resource], p.come[resource] = true, old.come[resource]
		if err := p.stores[resource].Replace(items, store.LastStoreSyncResourceVersion()); err != nil {
			return err
		}
	}
	return nil
}

// refuse has requests answered with an error: verb, resource, kind of error, words.
func (s *stage) refuse(args arguments) error {
	if args.has("terminating") {
		s.cluster.terminating = true
	}
	answer, err := errorOf(args.word(2), args.word(3), args.word(1))
	name, _ := args.value("name")
	s.cluster.refusals = append(s.cluster.refusals, &refusal{verb: args.word(0), resource: args.word(1), name: name, answer: answer, once: args.has("once")})
	return err
}

// lose has requests go without an answer: the request itself is lost, or, when done, the answer to it.
func (s *stage) lose(args arguments, done bool) error {
	answer := func(string) error { return errNoAnswer }
	s.cluster.refusals = append(s.cluster.refusals, &refusal{verb: args.word(0), resource: args.word(1), answer: answer, done: done, once: args.has("once")})
	return nil
}

// override has all Deployments changed on their way in.
func (s *stage) override(args arguments) error {
	s.editDeployment(deploymentOf("any"), args) // Marks what is used.
	s.cluster.overrides = append(s.cluster.overrides, func(dep *appsv1.Deployment) { s.editDeployment(dep, args) })
	return nil
}

// waitFor lets time pass.
func (s *stage) waitFor(args arguments) error {
	pass, err := time.ParseDuration(args.word(0))
	if err != nil {
		return err
	}
	end := time.Now().Add(pass)
	s.wait(func(next time.Time) bool { return next.After(end) })
	time.Sleep(time.Until(end))
	return nil
}

// waitUntilTried lets time pass until the syncs of a Foo have sent something so many times.
func (s *stage) waitUntilTried(args arguments) error {
	name := args.word(0)
	times, err := strconv.Atoi(cmp.Or(args.word(4), "1"))
	for _, word := range []string{"is", "tried", "again", "times"} {
		args.has(word)
	}
	s.settle()
	before := len(s.syncs)
	tried := func() (n int) {
		for _, telling := range s.syncs[before:] {
			if telling.foo == name {
				n++
			}
		}
		return n
	}
	s.wait(func(time.Time) bool { return tried() >= times })
	if tried() < times {
		return fmt.Errorf("tried again %d times", tried())
	}
	return err
}

// syncNow syncs a Foo, as often as args say, although nothing has happened to it.
func (s *stage) syncNow(args arguments) error {
	times, _ := strconv.Atoi(cmp.Or(args.word(1), "1"))
	args.has("times")
	for range times {
		for _, p := range s.instances {
			p.queue.Add(cache.NewObjectName(namespace, args.word(0)))
		}
		s.settle()
	}
	return nil
}

// showFoo shows the status of a Foo.
func (s *stage) showFoo(args arguments) error {
	s.settle()
	foo := s.cluster.foo(args.word(0))
	if foo == nil {
		s.shown = append(s.shown, fmt.Sprintf("there is no Foo %s", args.word(0)))
		return nil
	}
	s.shown = append(s.shown,
		fmt.Sprintf("foo %s %s", foo.Name, statusWords(&foo.Status)),
		fmt.Sprintf("    generation %d, observed %d; %d replicas, %d available, selector %s",
			foo.Generation, foo.Status.ObservedGeneration, foo.Status.Replicas, foo.Status.AvailableReplicas, cmp.Or(foo.Status.Selector, "none")))
	return nil
}

// showDeployment shows a Deployment.
func (s *stage) showDeployment(args arguments) error {
	s.settle()
	dep := s.cluster.deployment(args.word(0))
	if dep == nil {
		s.shown = append(s.shown, fmt.Sprintf("there is no Deployment %s", args.word(0)))
		return nil
	}
	line := fmt.Sprintf("deployment %s %s replicas=%d", dep.Name, shortUID(dep.UID), *dep.Spec.Replicas)
	for _, container := range dep.Spec.Template.Spec.Containers {
		line += fmt.Sprintf(" %s=%s", container.Name, container.Image)
	}
	for _, ref := range dep.OwnerReferences {
		line += fmt.Sprintf(" owner=%s(%s)", ref.Name, shortUID(ref.UID))
	}
	s.shown = append(s.shown, line)
	for _, label := range slices.Sorted(maps.Keys(dep.Labels)) {
		s.shown = append(s.shown, fmt.Sprintf("    label %s=%s", label, dep.Labels[label]))
	}
	for _, label := range slices.Sorted(maps.Keys(dep.Spec.Selector.MatchLabels)) {
		s.shown = append(s.shown, fmt.Sprintf("    selects %s=%s", label, dep.Spec.Selector.MatchLabels[label]))
	}
	return nil
}

// shortUID returns the part of a uid that counts: the simulated API server numbers objects at the end of it.
func shortUID(uid types.UID) string {
	n, _ := strconv.ParseUint(string(uid)[strings.LastIndex(string(uid), "-")+1:], 16, 64)
	return fmt.Sprintf("uid-%d", n)
}
