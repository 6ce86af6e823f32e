"""Generated conformance requests: the same requests go to kube-apiserver and to the embedded API server.

``python -m tests.conformance.generative record`` makes the requests from folders of manifests, sends them to
a control plane, and stores them with its responses. ``… compare`` sends the stored requests to an embedded
API server, and groups the differences by cause.
"""
