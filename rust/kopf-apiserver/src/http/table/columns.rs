//! Printer columns of built-in resources: name, type, priority and source. `cells` interprets the source.

/// Name, type, priority and source of each column.
pub(super) type Columns = &'static [(&'static str, &'static str, i64, &'static str)];

const AGE: (&str, &str, i64, &str) = ("Age", "string", 0, "age");

/// Columns of a built-in resource, after its name.
pub(super) fn of(group: &str, plural: &str) -> Columns {
    match (group, plural) {
        ("" | "events.k8s.io", "events") => &EVENTS,
        ("", _) => core(plural),
        ("apps", _) => apps(plural),
        _ => other(group, plural),
    }
}

fn core(plural: &str) -> Columns {
    match plural {
        "pods" => &[
            ("Ready", "string", 0, "pod-ready"),
            ("Status", "string", 0, "pod-status"),
            ("Restarts", "string", 0, "pod-restarts"),
            AGE,
            ("IP", "string", 1, "or-none .status.podIP"),
            ("Node", "string", 1, "or-none .spec.nodeName"),
            ("Nominated Node", "string", 1, "or-none .status.nominatedNodeName"),
            ("Readiness Gates", "string", 1, "none"),
        ],
        "configmaps" => &[("Data", "string", 0, "count .data"), AGE],
        "secrets" => &[("Type", "string", 0, ".type"), ("Data", "string", 0, "count .data"), AGE],
        "namespaces" => &[("Status", "string", 0, ".status.phase"), AGE],
        "services" => &[
            ("Type", "string", 0, ".spec.type"),
            ("Cluster-IP", "string", 0, "or-none .spec.clusterIP"),
            ("External-IP", "string", 0, "none"),
            ("Port(s)", "string", 0, "service-ports"),
            AGE,
            ("Selector", "string", 1, "selector .spec.selector"),
        ],
        "replicationcontrollers" => &[
            ("Desired", "integer", 0, "number .spec.replicas"),
            ("Current", "integer", 0, "number .status.replicas"),
            ("Ready", "integer", 0, "number .status.readyReplicas"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector"),
        ],
        "endpoints" => &[("Endpoints", "string", 0, "addresses"), AGE],
        "nodes" => &[
            ("Status", "string", 0, "node-status"),
            ("Roles", "string", 0, "node-roles"),
            AGE,
            ("Version", "string", 0, ".status.nodeInfo.kubeletVersion"),
        ],
        "persistentvolumeclaims" => &[
            ("Status", "string", 0, ".status.phase"),
            ("Volume", "string", 0, ".spec.volumeName"),
            ("Capacity", "string", 0, ".status.capacity.storage"),
            ("Access Modes", "string", 0, "modes .status.accessModes"),
            ("StorageClass", "string", 0, ".spec.storageClassName"),
            AGE,
        ],
        "persistentvolumes" => &[
            ("Capacity", "string", 0, ".spec.capacity.storage"),
            ("Access Modes", "string", 0, "modes .spec.accessModes"),
            ("Reclaim Policy", "string", 0, ".spec.persistentVolumeReclaimPolicy"),
            ("Status", "string", 0, ".status.phase"),
            ("StorageClass", "string", 0, ".spec.storageClassName"),
            AGE,
        ],
        _ => &[AGE],
    }
}

fn apps(plural: &str) -> Columns {
    match plural {
        "deployments" => &[
            ("Ready", "string", 0, "ratio .status.readyReplicas .spec.replicas"),
            ("Up-to-date", "string", 0, "number .status.updatedReplicas"),
            ("Available", "string", 0, "number .status.availableReplicas"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector.matchLabels"),
        ],
        "replicasets" => &[
            ("Desired", "integer", 0, "number .spec.replicas"),
            ("Current", "integer", 0, "number .status.replicas"),
            ("Ready", "integer", 0, "number .status.readyReplicas"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector.matchLabels"),
        ],
        "statefulsets" => &[
            ("Ready", "string", 0, "ratio .status.readyReplicas .spec.replicas"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
        ],
        "daemonsets" => &[
            ("Desired", "integer", 0, "number .status.desiredNumberScheduled"),
            ("Current", "integer", 0, "number .status.currentNumberScheduled"),
            ("Ready", "integer", 0, "number .status.numberReady"),
            ("Up-to-date", "integer", 0, "number .status.updatedNumberScheduled"),
            ("Available", "integer", 0, "number .status.numberAvailable"),
            ("Node Selector", "string", 0, "selector .spec.template.spec.nodeSelector"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector.matchLabels"),
        ],
        _ => &[AGE],
    }
}

fn other(group: &str, plural: &str) -> Columns {
    match (group, plural) {
        ("batch", "jobs") => &[
            ("Status", "string", 0, "job-status"),
            ("Completions", "string", 0, "ratio .status.succeeded .spec.completions"),
            ("Duration", "string", 0, "duration"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector.matchLabels"),
        ],
        ("batch", "cronjobs") => &[
            ("Schedule", "string", 0, ".spec.schedule"),
            ("Timezone", "string", 0, "or-none .spec.timeZone"),
            ("Suspend", "boolean", 0, "has .spec.suspend"),
            ("Active", "integer", 0, "length .status.active"),
            ("Last Schedule", "string", 0, "since .status.lastScheduleTime"),
            AGE,
        ],
        ("autoscaling", "horizontalpodautoscalers") => &[
            ("Reference", "string", 0, "reference .spec.scaleTargetRef"),
            ("MinPods", "string", 0, ".spec.minReplicas"),
            ("MaxPods", "string", 0, ".spec.maxReplicas"),
            ("Replicas", "string", 0, "number .status.currentReplicas"),
            AGE,
        ],
        ("discovery.k8s.io", "endpointslices") => &[
            ("AddressType", "string", 0, ".addressType"),
            ("Ports", "string", 0, "slice-ports"),
            ("Endpoints", "string", 0, "slice-addresses"),
            AGE,
        ],
        ("networking.k8s.io", "ingresses") => &[
            ("Class", "string", 0, "or-none .spec.ingressClassName"),
            ("Hosts", "string", 0, "hosts"),
            ("Address", "string", 0, "blank"),
            ("Ports", "string", 0, "ingress-ports"),
            AGE,
        ],
        ("networking.k8s.io", "networkpolicies") => {
            &[("Pod-Selector", "string", 0, "selector .spec.podSelector.matchLabels"), AGE]
        }
        ("policy", "poddisruptionbudgets") => &[
            ("Min Available", "string", 0, "or-na .spec.minAvailable"),
            ("Max Unavailable", "string", 0, "or-na .spec.maxUnavailable"),
            ("Allowed Disruptions", "integer", 0, "number .status.disruptionsAllowed"),
            AGE,
        ],
        ("storage.k8s.io", "storageclasses") => &[
            ("Provisioner", "string", 0, ".provisioner"),
            ("ReclaimPolicy", "string", 0, ".reclaimPolicy"),
            ("VolumeBindingMode", "string", 0, ".volumeBindingMode"),
            ("AllowVolumeExpansion", "boolean", 0, "has .allowVolumeExpansion"),
            AGE,
        ],
        ("scheduling.k8s.io", "priorityclasses") => &[
            ("Value", "integer", 0, ".value"),
            ("Global-Default", "boolean", 0, "has .globalDefault"),
            AGE,
            ("PreemptionPolicy", "string", 0, ".preemptionPolicy"),
        ],
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => &[("Webhooks", "integer", 0, "length .webhooks"), AGE],
        ("coordination.k8s.io", "leases") => &[("Holder", "string", 0, ".spec.holderIdentity"), AGE],
        ("apiextensions.k8s.io", _) => &[("Created At", "date", 0, ".metadata.creationTimestamp")],
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            &[("Created At", "date", 0, ".metadata.creationTimestamp")]
        }
        ("rbac.authorization.k8s.io", _) => &[("Role", "string", 0, "role-ref"), AGE],
        _ => &[AGE],
    }
}

const EVENTS: [(&str, &str, i64, &str); 5] = [
    ("Last Seen", "string", 0, "last-seen"),
    ("Type", "string", 0, ".type"),
    ("Reason", "string", 0, ".reason"),
    ("Object", "string", 0, "event-object"),
    ("Message", "string", 0, ".message"),
];
