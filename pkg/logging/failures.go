package logging

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// repeatEvery is how soon a failure of a key is logged again with the same message.
	repeatEvery = time.Minute
	// maxKeys is how many keys are remembered. Those beyond are logged as if they were one key.
	maxKeys = 10_000
	// maxMessages is how many messages are remembered of one key. Those beyond are logged as if they were one message.
	maxMessages = 8
)

// Failures logs syncs that fail, for a controller that retries them with a backoff: each message of a key once, then
// once a minute with the number of failures, and one line when the key has recovered. The zero value is ready to use.
// It may be used concurrently.
//
// Messages that differ only in words with a digit are one message: the used part of a quota changes from try to try.
type Failures[K comparable] struct {
	mu   sync.Mutex
	keys map[K]*failing
	// others are the keys that came when there were maxKeys already.
	others failing
}

// failing is what is remembered of a key that fails. Guarded by Failures.mu.
type failing struct {
	count int
	// loggedAt has when each message was last logged, by its hash; otherMessages stands for those beyond maxMessages.
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

// entry returns the entry of key. It makes a new one for a key that has no entry.
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

// Succeeded logs that the sync of key works again, if a failure of it was logged, and drops what is remembered of it.
func (f *Failures[K]) Succeeded(logger klog.Logger, key K) {
	if entry := f.remove(key); entry != nil {
		logger.Info("Sync recovered", "failures", entry.count)
	}
}

// Forget drops what is remembered of key without a word: its object is gone, or no sync of it is retried.
func (f *Failures[K]) Forget(key K) { f.remove(key) }

func (f *Failures[K]) remove(key K) *failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := f.keys[key]
	delete(f.keys, key)
	return entry
}
