// The peer of the benchmarks with controller-runtime: the same decisions and the same writes as the handlers and reconcilers in
// operators/. It obeys the environment variables of operators/reporting.py; BENCH_MODE is the workload.
package main

import (
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const workers = 32

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	log.SetLogger(logr.Discard())
	config := ctrl.GetConfigOrDie()
	config.QPS = -1
	mgr, err := ctrl.NewManager(config, manager.Options{
		Metrics: server.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	check(err)
	b := newBench(mgr.GetClient())
	ctx := ctrl.SetupSignalHandler()
	if b.mode == "firehose" {
		check(watchConfigMaps(ctx, mgr, b))
	} else {
		check(control(mgr, b))
	}
	check(mgr.Start(ctx))
}

// control adds a controller of the objects of the workloads to the manager.
func control(mgr ctrl.Manager, b *bench) error {
	builder := ctrl.NewControllerManagedBy(mgr).For(newObject()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	switch b.mode {
	case "requeue":
		return builder.Complete(&reconciler{b})
	case "owned", "apply":
		return builder.Owns(&corev1.ConfigMap{}).Complete(&reconciler{b})
	default:
		return builder.Complete(&handler{bench: b, daemons: map[string]bool{}})
	}
}
