package logging

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// repeatEvery is the time after which the same message of a key is logged again.
	repeatEvery = time.Minute
	// maxKeys is the number of keys that are remembered. All further keys are logged as if they were one key.
	maxKeys = 10_000
	// maxMessages is the number of messages that are remembered of one key. All further messages are logged as if they
	// were one message.
	maxMessages = 8
)

// Failures logs the failed syncs of a controller that retries them with a backoff. It logs each message of a key once,
// then once a minute with the number of failures, and logs one line when the key has recovered. The zero value is ready
// to use. It may be used concurrently.
//
// Messages that differ only in words with a digit count as one message. Otherwise a message with the used part of a
// quota would be a new one with every attempt.
type Failures[K comparable] struct {
	mu   sync.Mutex
	keys map[K]*failing
	// others are the keys that came when there were maxKeys already.
	others failing
}

// failing is the record of a key that fails. Guarded by Failures.mu.
type failing struct {
	count int
	// loggedAt has the time at which each message was last logged, by its hash. The messages beyond maxMessages share the
	// key otherMessages.
	loggedAt map[uint64]time.Time
}

const otherMessages = 0

// Failed logs that the sync of key failed with err, unless that was logged in the last minute.
func (f *Failures[K]) Failed(logger klog.Logger, key K, err error) {
	message := hash(withoutNumbers(fmt.Sprint(err)))
	if count, due := f.record(key, message, time.Now()); due {
		logger.Error(err, "Sync failed", "failures", count)
	}
}

// record counts a failure of key. It returns how many there were since the key last succeeded, and whether the message
// is to be logged.
func (f *Failures[K]) record(key K, message uint64, now time.Time) (count int, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := f.entry(key)
	entry.count++
	if _, known := entry.loggedAt[message]; !known && len(entry.loggedAt) >= maxMessages {
		message = otherMessages
	}
	last, known := entry.loggedAt[message]
	if known && now.Sub(last) < repeatEvery {
		return entry.count, false
	}
	entry.loggedAt[message] = now
	return entry.count, true
}

// entry returns the entry of key. It adds one if key has none yet.
func (f *Failures[K]) entry(key K) *failing {
	if entry := f.keys[key]; entry != nil {
		return entry
	}
	entry := &f.others
	if len(f.keys) < maxKeys {
		entry = &failing{}
		if f.keys == nil {
			f.keys = map[K]*failing{}
		}
		f.keys[key] = entry
	}
	if entry.loggedAt == nil {
		entry.loggedAt = map[uint64]time.Time{}
	}
	return entry
}

// Succeeded logs that the sync of key has recovered, if a failure of it was logged. It drops the record of key.
func (f *Failures[K]) Succeeded(logger klog.Logger, key K) {
	if entry := f.remove(key); entry != nil {
		logger.Info("Sync recovered", "failures", entry.count)
	}
}

// Forget drops the record of key and logs nothing: its object does not exist any more, or its sync is not retried.
func (f *Failures[K]) Forget(key K) { f.remove(key) }

func (f *Failures[K]) remove(key K) *failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := f.keys[key]
	delete(f.keys, key)
	return entry
}
