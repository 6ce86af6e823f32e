package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const lastHandled = "kopf.zalando.org/last-handled-configuration"

// handler has the effects of Kopf's handlers: the workloads W1 to W8.
type handler struct {
	*bench
	daemons map[string]bool
}

func (h *handler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := newObject()
	if err := h.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name := object.GetName()
	revision, _, _ := unstructured.NestedInt64(object.Object, "spec", "rev")
	h.saw(name, revision)
	if isProbe(name) {
		return ctrl.Result{}, nil
	}
	switch h.mode {
	case "timers":
		h.fire(name)
		return ctrl.Result{RequeueAfter: time.Second}, nil
	case "daemons":
		h.startDaemon(name)
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(h.handle(ctx, object))
}

// handle stores the handled state, and a result if the object is new.
func (h *handler) handle(ctx context.Context, object *unstructured.Unstructured) error {
	essence, err := json.Marshal(map[string]any{"spec": object.Object["spec"]})
	if err != nil {
		return err
	}
	text, isKnown := object.GetAnnotations()[lastHandled]
	if isKnown && isEqual(text, string(essence)) {
		return nil
	}
	if h.mode == "latency" {
		h.mu.Lock()
		h.report("start", map[string]any{"name": object.GetName()})
		h.mu.Unlock()
	}
	if h.mode == "sleepers" {
		time.Sleep(100 * time.Millisecond)
	}
	annotations := map[string]any{lastHandled: string(essence) + "\n"}
	patch, err := mergePatch(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	if err := h.client.Patch(ctx, object, patch); err != nil {
		return err
	}
	cause := "update"
	if !isKnown {
		cause = "create"
		result := map[string]any{"bench_create": map[string]any{"ok": true, "name": object.GetName()}}
		patch, err := mergePatch(map[string]any{"status": result})
		if err != nil {
			return err
		}
		if err := h.client.Status().Patch(ctx, object, patch); err != nil {
			return err
		}
	}
	if !h.posting {
		return nil
	}
	if err := h.post(ctx, object, fmt.Sprintf("Handler 'bench_%s' succeeded.", cause)); err != nil {
		return err
	}
	return h.post(ctx, object, fmt.Sprintf("%s is processed: 1 succeeded; 0 failed.", cause))
}

func isEqual(text, other string) bool {
	var left, right any
	return json.Unmarshal([]byte(text), &left) == nil && json.Unmarshal([]byte(other), &right) == nil &&
		reflect.DeepEqual(left, right)
}

func mergePatch(patch map[string]any) (client.Patch, error) {
	text, err := json.Marshal(patch)
	return client.RawPatch(types.MergePatchType, text), err
}

// post creates a Kubernetes event with the fields that Kopf sets.
func (h *handler) post(ctx context.Context, object *unstructured.Unstructured, message string) error {
	now := metav1.Now()
	return h.client.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), GenerateName: "kopf-event-"},
		Action:     "Action?", Type: "Normal", Reason: "Logging", Message: message,
		ReportingController: "kopf", ReportingInstance: "dev", Source: corev1.EventSource{Component: "kopf"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "bench.example.com/v1", Kind: "Bench",
			Name: object.GetName(), UID: object.GetUID(), Namespace: object.GetNamespace()},
		FirstTimestamp: now, LastTimestamp: now, EventTime: metav1.NewMicroTime(now.Time),
	})
}

// startDaemon starts a goroutine for the object unless it has one.
func (h *handler) startDaemon(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.daemons[name] {
		return
	}
	h.daemons[name] = true
	go func() {
		for {
			time.Sleep(time.Second)
		}
	}()
	if len(h.daemons) == h.expected {
		h.once("window_start", map[string]any{})
	}
}

// watchConfigMaps counts each watch event of a config map: an event handler without a queue.
func watchConfigMaps(ctx context.Context, mgr ctrl.Manager, b *bench) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return err
	}
	handle := func(object any) {
		configMap := object.(*corev1.ConfigMap)
		revision, _ := strconv.ParseInt(configMap.Data["rev"], 10, 64)
		b.saw(configMap.Name, revision)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }})
	return err
}
