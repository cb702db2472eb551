package plan

// A walkDefect is a known defect of this package: a conversation may break the rule if all the words are in its
// description. Each must still occur. Remove a defect from this list when it is corrected.
type walkDefect struct {
	id, rule string
	words    []string
}

var walkDefects = []walkDefect{}
