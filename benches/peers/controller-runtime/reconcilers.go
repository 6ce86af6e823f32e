package main

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const managerName = "controller-runtime-peer"

// reconciler is for the workloads R1 (requeue), R2 (owned) and R3 (apply).
type reconciler struct{ *bench }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := newObject()
	if err := r.client.Get(ctx, request.NamespacedName, object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name := object.GetName()
	if r.mode == "requeue" {
		r.fire(name)
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	r.saw(name, 0)
	if isProbe(name) {
		return ctrl.Result{}, nil
	}
	image, _, _ := unstructured.NestedString(object.Object, "spec", "image")
	child := &corev1.ConfigMap{}
	if err := r.client.Get(ctx, request.NamespacedName, child); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if child.Data["image"] != image {
		if err := r.applyChild(ctx, object, image); err != nil {
			return ctrl.Result{}, err
		}
	}
	if r.mode == "apply" && !isReady(object) {
		return ctrl.Result{}, r.setCondition(ctx, object)
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) applyChild(ctx context.Context, object *unstructured.Unstructured, image string) error {
	yes := true
	owner := metav1.OwnerReference{APIVersion: "bench.example.com/v1", Kind: "Bench", Name: object.GetName(),
		UID: object.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}
	child := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: object.GetName(), Namespace: object.GetNamespace(),
			OwnerReferences: []metav1.OwnerReference{owner}},
		Data: map[string]string{"image": image},
	}
	return r.client.Patch(ctx, child, client.Apply, client.ForceOwnership, client.FieldOwner(managerName))
}

func (r *reconciler) setCondition(ctx context.Context, object *unstructured.Unstructured) error {
	condition := map[string]any{"type": "Ready", "status": "True", "reason": "Applied", "message": "",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339), "observedGeneration": object.GetGeneration()}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return err
	}
	return r.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
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
