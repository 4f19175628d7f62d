# What the test cluster is made of. Kubernetes 1.35 and later refuse cgroup v1; kubeadm 1.34 asks for the other tags.
KIND=v0.33.0
KUBERNETES=v1.34.4
ETCD_TAG=3.6.5-0
COREDNS_TAG=v1.12.1
PAUSE_TAG=3.10.1
# The official node image of this kind release, for machines that can pull one.
NODE_IMAGE=kindest/node:v1.34.11@sha256:44e222ee2132dab25ff87301682f89eb82c7880ea3a1bf543bfe9708fd08d67d
# Our control-plane images carry no registry's name: nothing can, or must, be pulled.
IMAGE_REPOSITORY=localhost/kubernetes
