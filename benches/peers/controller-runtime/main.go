// The reconcilers of the workloads R1, R2 and R3 with controller-runtime: the same decisions and the same writes as those in
// operators/. It obeys the environment variables of operators/reporting.py; BENCH_MODE is requeue, owned or apply.
package main

import (
	"context"
	"encoding/json"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const managerName = "controller-runtime-peer"

var kind = schema.GroupVersionKind{Group: "bench.example.com", Version: "v1", Kind: "Bench"}

func variable(name, def string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return def
}

type peer struct {
	client   client.Client
	mode     string
	expected int
	window   time.Duration
	out      *os.File

	mu       sync.Mutex
	reported map[string]bool
	seen     map[string]bool
	fired    map[string]time.Time
	start    time.Time
	late     []float64
}

func (p *peer) once(what string, line map[string]any) {
	if p.reported[what] {
		return
	}
	p.reported[what] = true
	line["what"] = what
	line["t"] = float64(time.Now().UnixNano()) / 1e9
	text, _ := json.Marshal(line)
	p.out.Write(append(text, '\n'))
}

func (p *peer) saw(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.once("ready", map[string]any{})
	if strings.HasPrefix(name, "probe") {
		return
	}
	p.seen[name] = true
	if len(p.seen) == p.expected {
		p.once("done", map[string]any{})
	}
}

func (p *peer) fire(name string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.fired[name]
	p.fired[name] = now
	if p.start.IsZero() && len(p.fired) >= p.expected {
		p.start = now
		p.once("window_start", map[string]any{})
	}
	if p.start.IsZero() || !known {
		return
	}
	if now.Sub(p.start) <= p.window {
		p.late = append(p.late, now.Sub(last).Seconds()-1)
	} else if !p.reported["window_end"] {
		sort.Float64s(p.late)
		calls := len(p.late)
		p.once("window_end", map[string]any{"invocations": calls, "late_p50": p.late[calls/2], "late_p99": p.late[calls*99/100]})
	}
}

func isReady(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		generation, _ := condition["observedGeneration"].(int64)
		if condition["type"] == "Ready" && condition["status"] == "True" && generation == object.GetGeneration() {
			return true
		}
	}
	return false
}

func (p *peer) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := p.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name := object.GetName()
	if p.mode == "requeue" {
		p.fire(name)
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	p.saw(name)
	if strings.HasPrefix(name, "probe") {
		return ctrl.Result{}, nil
	}
	image, _, _ := unstructured.NestedString(object.Object, "spec", "image")
	child := &corev1.ConfigMap{}
	if err := p.client.Get(ctx, request.NamespacedName, child); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if child.Data["image"] != image {
		yes := true
		owner := metav1.OwnerReference{APIVersion: "bench.example.com/v1", Kind: "Bench", Name: name, UID: object.GetUID(),
			Controller: &yes, BlockOwnerDeletion: &yes}
		child = &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: object.GetNamespace(), OwnerReferences: []metav1.OwnerReference{owner}},
			Data:       map[string]string{"image": image},
		}
		if err := p.client.Patch(ctx, child, client.Apply, client.ForceOwnership, client.FieldOwner(managerName)); err != nil {
			return ctrl.Result{}, err
		}
	}
	if p.mode == "apply" && !isReady(object) {
		condition := map[string]any{"type": "Ready", "status": "True", "reason": "Applied", "message": "",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339), "observedGeneration": object.GetGeneration()}
		patch, _ := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
		if err := p.client.Status().Patch(ctx, object, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	log.SetLogger(logr.Discard())
	out, err := os.OpenFile(variable("BENCH_OUT", "bench.out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(err)
	config := ctrl.GetConfigOrDie()
	config.QPS = -1
	mgr, err := ctrl.NewManager(config, manager.Options{
		Metrics: server.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	check(err)
	expected, _ := strconv.Atoi(variable("BENCH_EXPECT", "0"))
	window, _ := strconv.ParseFloat(variable("BENCH_WINDOW", "10"), 64)
	p := &peer{client: mgr.GetClient(), mode: variable("BENCH_MODE", "apply"), expected: expected,
		window: time.Duration(window * float64(time.Second)), out: out,
		reported: map[string]bool{}, seen: map[string]bool{}, fired: map[string]time.Time{}}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	builder := ctrl.NewControllerManagedBy(mgr).For(object).WithOptions(controller.Options{MaxConcurrentReconciles: 32})
	if p.mode != "requeue" {
		builder = builder.Owns(&corev1.ConfigMap{})
	}
	check(builder.Complete(p))
	check(mgr.Start(ctrl.SetupSignalHandler()))
}
