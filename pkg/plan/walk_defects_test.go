package plan

// A walkDefect is a known defect of this package: a conversation may break the rule if all the words are in its
// description. Each must still occur. Remove a defect from this list when it is corrected.
type walkDefect struct {
	id, rule string
	words    []string
}

var walkDefects = []walkDefect{
	{
		id:    "B1: a delete although fewer replicas are available than the Foo wants",
		rule:  "a delete takes away no replica that is needed",
		words: []string{"| capped by a policy |", "(delete replaced): not allowed"},
	}, {
		id:    "B2: what served once is deleted when it has no replica for a moment",
		rule:  "a delete takes away no replica that is needed",
		words: []string{"| one that never served and one that lost its pods |", "(delete never served): not allowed"},
	}, {
		id:    "B2: what served once is deleted when it has no replica for a moment",
		rule:  "what backs off comes back",
		words: []string{"| one that never served and one that lost its pods |", "| delete Deployment web-2 backs off"},
	}, {
		id:    "B9: a 404 for want of the status subresource counts as done",
		rule:  "what was not done comes back",
		words: []string{"update status of Foo web (update status): no status subresource"},
	}, {
		id:    "B9: a status whose conditions are dropped counts as done",
		rule:  "when it is done another sync sends nothing",
		words: []string{"the conditions are dropped"},
	}, {
		id:    "W1: the status is written from a cache that is known to lag",
		rule:  "when it is done another sync sends nothing",
		words: []string{"| a write of the Deployment unseen |", "(update status): another sync"},
	}, {
		id:    "W2: what is to be patched a second time in a sync is not reported",
		rule:  "Ready is True only when it is",
		words: []string{"patch Deployment web-3 (patch drift): good", "the Deployment is scaled"},
	}, {
		id:    "W2: what is to be patched a second time in a sync is not reported",
		rule:  "a delay is between 0 and a minute, and 0 only after a failure",
		words: []string{"patch Deployment web-3 (patch drift): good"},
	}, {
		id:    "W3: a previous Deployment that is being deleted does not count as one that the Foo had",
		rule:  "a create waits for a live read of the Foo, and for older claimants",
		words: []string{"in: new Foo |", "terminating"},
	}, {
		id:    "W4: the status about repeated deletions ends with a delay after which nothing comes back",
		rule:  "when it is done another sync sends nothing",
		words: []string{"create Deployment web-3 again backs off until now", "create Deployment web-3 (create): good"},
	}, {
		id:    "W4: the status about repeated deletions ends with a delay after which nothing comes back",
		rule:  "syncs come to an end",
		words: []string{"| create Deployment web-3 again backs off", "sync after 2m0s, done"},
	}, {
		id:    "W6: a refusal is not logged when the sync ends because of an earlier conflict",
		rule:  "what was refused is logged",
		words: []string{"backs off after a conflict"},
	}, {
		id:    "W5: a delete answered by 404 counts as done although the Deployment is there",
		rule:  "when it is done another sync sends nothing",
		words: []string{"delete Deployment web-", "): not found", "another sync"},
	},
}
