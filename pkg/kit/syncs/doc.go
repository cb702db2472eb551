// Package syncs records what a controller did lately, for a person who wants to see why: which event queued an object,
// what its sync observed, which rule sent which request, what the API server answered, and when the object comes back.
//
// A Log records the syncs of one queue, with strings, numbers and times only: it knows no kind. Its handler serves them
// as a page, as text, and as JSON, see State. It is for a loopback address, see package serving: names and messages of
// all namespaces are in it.
//
// A Log is bounded, whatever users do: it has the last 1,000 syncs and the last 20 of each of the 1,000 objects that
// were synced last, up to 4 MiB of them, and the causes of up to 40,000 syncs to come. Only syncs that are running may
// need more. A nil Log records nothing, and costs nothing: a program without the endpoint has one.
package syncs
