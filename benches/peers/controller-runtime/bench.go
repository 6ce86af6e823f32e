package main

import (
	"encoding/json"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bench is one run of a workload: its options, and what operators/reporting.py counts.
type bench struct {
	client   client.Client
	mode     string
	expected int
	posting  bool
	revision int64
	window   time.Duration
	out      *os.File

	mu        sync.Mutex
	reported  map[string]bool
	calls     int
	revisions map[string]int64
	complete  int
	fired     map[string]time.Time
	start     time.Time
	late      []float64
}

func newBench(client client.Client) *bench {
	out, err := os.OpenFile(variable("BENCH_OUT", "bench.out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	expected, err := strconv.Atoi(variable("BENCH_EXPECT", "0"))
	check(err)
	revision, err := strconv.ParseInt(variable("BENCH_REVISION", "0"), 10, 64)
	check(err)
	window, err := strconv.ParseFloat(variable("BENCH_WINDOW", "10"), 64)
	check(err)
	return &bench{client: client, mode: variable("BENCH_MODE", "burst"), expected: expected,
		posting: variable("BENCH_POSTING", "0") == "1", revision: revision,
		window: time.Duration(window * float64(time.Second)), out: out,
		reported: map[string]bool{}, revisions: map[string]int64{}, fired: map[string]time.Time{}}
}

func variable(name, def string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return def
}

func newObject() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "bench.example.com", Version: "v1", Kind: "Bench"})
	return object
}

// isProbe is whether the object exists only to report that the operator is ready.
func isProbe(name string) bool { return strings.HasPrefix(name, "probe") }

// report writes a line. The caller holds the lock.
func (b *bench) report(what string, line map[string]any) {
	line["what"] = what
	line["t"] = float64(time.Now().UnixNano()) / 1e9
	text, err := json.Marshal(line)
	check(err)
	_, err = b.out.Write(append(text, '\n'))
	check(err)
}

// once writes a line if it is the first one of its kind. The caller holds the lock.
func (b *bench) once(what string, line map[string]any) {
	if !b.reported[what] {
		b.reported[what] = true
		b.report(what, line)
	}
}

// saw counts an object in its revision.
func (b *bench) saw(name string, revision int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	b.once("ready", map[string]any{})
	if isProbe(name) {
		return
	}
	before, known := b.revisions[name]
	b.revisions[name] = revision
	if revision == b.revision && (!known || before != revision) {
		b.complete++
		if b.complete == b.expected {
			b.once("done", map[string]any{"events": b.calls})
		}
	}
}

// fire counts a call that is repeated every second, and its lateness.
func (b *bench) fire(name string) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.fired[name]
	b.fired[name] = now
	if b.start.IsZero() && len(b.fired) >= b.expected {
		b.start = now
		b.once("window_start", map[string]any{})
	}
	if b.start.IsZero() || !known {
		return
	}
	if now.Sub(b.start) <= b.window {
		b.late = append(b.late, now.Sub(last).Seconds()-1)
	} else if !b.reported["window_end"] {
		sort.Float64s(b.late)
		calls := len(b.late)
		b.once("window_end", map[string]any{"invocations": calls, "late_p50": b.late[calls/2], "late_p99": b.late[calls*99/100]})
	}
}
