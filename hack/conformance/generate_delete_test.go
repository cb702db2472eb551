package conformance

// remove draws the deletion of one object.
func remove(t draw) operation {
	op := target(t, "delete", "DELETE")
	op.body, op.query = deleteOptions(t)
	if op.body != nil {
		op.contentType = "application/json"
	}
	return op
}

// removeAll draws the deletion of the objects that a selector selects.
func removeAll(t draw) operation {
	op := operation{verb: "deletecollection", method: "DELETE", kind: pick(t, "kind", t.kinds...)}
	op.query = selectors(t, op.kind)
	if seldom(t, 4) {
		op.body, _ = deleteOptions(t)
		op.contentType = "application/json"
	}
	if seldom(t, 20) {
		op.query = append(op.query, parameter{"limit", "1"})
	}
	return op
}

// deleteOptions draws the preconditions and the policy of a deletion, as a body or as parameters.
func deleteOptions(t draw) (any, []parameter) {
	options := map[string]any{}
	conditions := map[string]any{}
	switch pick(t, "uid", 0, 0, 0, 1, 2, 3, 4) {
	case 1:
		conditions["uid"] = symbol{what: uidNow}
	case 2:
		conditions["uid"] = symbol{what: uidFormer}
	case 3:
		conditions["uid"] = noUID
	case 4:
		conditions["uid"] = ""
	}
	switch pick(t, "version", 0, 0, 0, 1, 2, 3, 4) {
	case 1:
		conditions["resourceVersion"] = symbol{what: rvCurrent}
	case 2:
		conditions["resourceVersion"] = symbol{what: rvOlder}
	case 3:
		conditions["resourceVersion"] = "999999999"
	case 4:
		conditions["resourceVersion"] = ""
	}
	if len(conditions) > 0 {
		options["preconditions"] = conditions
	}
	policy := pick(t, "policy", "", "", "Background", "Foreground", "Orphan", "Foreground", "Bogus")
	if policy != "" {
		options["propagationPolicy"] = policy
	}
	if seldom(t, 16) {
		options["orphanDependents"] = pick(t, "orphan", true, false)
	}
	if seldom(t, 16) {
		options["gracePeriodSeconds"] = pick(t, "grace", 0, 5, -1)
	}
	if len(options) == 0 {
		return nil, nil
	}
	if policy != "" && len(conditions) == 0 && seldom(t, 4) {
		return nil, []parameter{{"propagationPolicy", policy}}
	}
	if seldom(t, 8) {
		options["apiVersion"], options["kind"] = "v1", "DeleteOptions"
	}
	return options, nil
}
