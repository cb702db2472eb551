// Package trim drops what users write into objects and a controller does not read: on its way from the API server, and
// before it is cached. It sends nothing.
//
// [Identity] and [Child] are for transforms of informers: they return the metadata that is worth keeping. Then what
// nobody reads costs no memory, and what is read has a limit. [Conditions] and [Shared] are for what is kept: texts
// that many objects have are in memory once.
//
// [Responses] removes metadata.managedFields from the responses of an API server while they are read. Then one object
// with deep managed fields cannot stop a controller for all others. Use it with rest.Config.Wrap for every client that
// reads, as JSON, objects that users write. A transform would be too late. The following sections are about Responses.
//
// # The problem
//
// Go's JSON decoders refuse a document with more than 10,000 levels. The API server uses them too, so an object alone
// is within that limit. But an object in a watch event has one level more, and in a list two more. A user can create an
// object that can be stored and that no client can read in a list. The decoder fails before it reaches the object, so
// the whole list and the whole watch are lost, for all namespaces, also after a restart.
//
// The managed fields are the only such place in a custom resource with a structural schema: fieldsV1 takes any object
// from a user. All else is either of a type that is not deep, or removed by the API server. A controller that
// writes only what it owns does not need the managed fields.
//
// # The result
//
// Each array that is the value of a key "managedFields", at any depth, becomes null. Nothing else changes. The value of
// a label or an annotation of that name is a string, and stays. A key that is written with escapes, such as
// "\u006danagedFields", stays with its value: the API server writes only quotes, backslashes, <, >, & and control
// characters in that way, also if a client has sent other escapes.
//
// Only responses of the type application/json are read. Others, for instance in protobuf, pass untouched. The package
// does not check that a document is valid: what is not JSON stays an error of the decoder that reads it.
//
// # Writes
//
// An object that was read through Responses has no managed fields, and may be written in this state. A PUT or PATCH
// without managed fields, or with null, does not change those that are stored. The API server keeps them and records
// the manager of this write (decodeLiveOrNew in k8s.io/apimachinery/pkg/util/managedfields/internal/fieldmanager.go).
// For subresources such as status, it even ignores the managed fields of the request. An empty list is something else:
// it resets them (isResetManagedFields there). Typed clients do not send an empty list, but unstructured ones do. This
// is why the array becomes null and not [].
//
// What else a cache leaves out, such as labels, is a removal to API servers before 1.36, also in a PUT of a status:
// they keep it, and drop it from the managed fields. So write a status by a patch.
//
// # Cost
//
// A response needs one buffer of 4 KiB, however long it is, and passes on what has arrived without waiting for more.
// It takes about 10 ns of CPU time for each byte.
package trim
