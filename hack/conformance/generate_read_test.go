package conformance

// tooLarge is a resourceVersion that no server reaches. The real server waits three seconds for it.
const tooLarge = "999999999999"

func get(t draw) operation {
	op := target(t, "get", "GET")
	switch pick(t, "version", 0, 0, 0, 1, 2, 3, 4) {
	case 1:
		op.query = []parameter{{"resourceVersion", "0"}}
	case 2:
		op.query = []parameter{{"resourceVersion", symbol{what: rvOlder}}}
	case 3:
		op.query = []parameter{{"resourceVersion", symbol{what: rvCurrent}}}
	case 4:
		op.query = []parameter{{"resourceVersion", "abc"}}
	}
	if op.kind.status && seldom(t, 4) {
		op.sub = "status"
	}
	if seldom(t, 30) {
		op.query = append(op.query, parameter{"watch", "true"})
	}
	if seldom(t, 60) {
		op.query = []parameter{{"resourceVersion", tooLarge}}
	}
	return op
}

// selectors draws selectors of objects of a kind. Most of them select every new object that has the right name. A few
// select nothing or are invalid.
func selectors(t draw, k *kind) []parameter {
	var query []parameter
	labels := pick(t, "labels", "", "", "app=x", "app in (x,y)", "tier", "app!=y", "!gone", "app=x,tier=t",
		"app notin (y)")
	if labels != "" {
		query = append(query, parameter{"labelSelector", labels})
	}
	fields := []string{
		"", "", "", "metadata.name=" + pick(t, "name", names...), "metadata.name!=a", "metadata.namespace!=elsewhere",
	}
	if field := pick(t, "fields", append(fields, k.fieldSelectors...)...); field != "" {
		query = append(query, parameter{"fieldSelector", field})
	}
	return query
}

// list draws a list, or one of its pages.
func list(t draw) operation {
	op := operation{verb: "list", method: "GET", kind: pick(t, "kind", t.kinds...)}
	op.query = selectors(t, op.kind)
	switch pick(t, "paging", 0, 0, 1, 2) {
	case 1:
		op.query = append(op.query, parameter{"limit", pick(t, "limit", "1", "2")})
	case 2:
		op.query = append(op.query, parameter{"limit", "1"}, parameter{"continue", symbol{what: nextPage}})
	}
	version := pick[any](t, "version", nil, nil, "0", symbol{what: rvNewest}, symbol{what: rvListed},
		symbol{what: rvStart}, symbol{what: rvCurrent, name: "a"}, symbol{what: rvOlder, name: "a"}, "abc", "")
	if version != nil {
		op.query = append(op.query, parameter{"resourceVersion", version})
	}
	match := pick(t, "match", "", "", "Exact", "NotOlderThan", "Bogus")
	if match != "" && (version != nil || seldom(t, 6)) {
		op.query = append(op.query, parameter{"resourceVersionMatch", match})
	}
	if seldom(t, 40) {
		op.query = append(op.query, pick(t, "oddity",
			parameter{"labelSelector", "not a selector!"}, parameter{"fieldSelector", "bogus=1"},
			parameter{"labelSelector", "app=none"}, parameter{"continue", "bogus"}, parameter{"limit", "many"},
			parameter{"sendInitialEvents", "true"}))
	}
	if seldom(t, 120) {
		op.query = []parameter{{"resourceVersion", tooLarge}}
	}
	return op
}

// watch draws a watch from a known version. It is read at the end of the sequence.
func watch(t draw) operation {
	op := operation{verb: "watch", method: "GET", kind: pick(t, "kind", t.kinds...)}
	op.query = append([]parameter{{"watch", "true"}}, selectors(t, op.kind)...)
	version := pick[any](t, "version", symbol{what: rvNewest}, symbol{what: rvStart}, symbol{what: rvListed}, nil, "0",
		symbol{what: rvOlder, name: "a"}, symbol{what: rvCurrent, name: "b"}, "")
	if version != nil {
		op.query = append(op.query, parameter{"resourceVersion", version})
	}
	switch pick(t, "initial", 0, 0, 0, 1, 1, 2, 3) {
	case 1:
		op.query = append(op.query, parameter{"sendInitialEvents", "true"},
			parameter{"resourceVersionMatch", "NotOlderThan"}, parameter{"allowWatchBookmarks", "true"})
	case 2:
		op.query = append(op.query, parameter{"allowWatchBookmarks", "true"})
	case 3:
		op.query = append(op.query, pick(t, "oddity",
			parameter{"sendInitialEvents", "true"}, parameter{"resourceVersionMatch", "NotOlderThan"},
			parameter{"resourceVersionMatch", "Exact"}, parameter{"limit", "1"}, parameter{"resourceVersion", "abc"},
			parameter{"labelSelector", "not a selector!"}, parameter{"fieldSelector", "bogus=1"},
			parameter{"sendInitialEvents", "false"}, parameter{"continue", "x"}))
	}
	return op
}
