locals {
  everyone = "*"
  subnet   = var.subnet_prefix

  profiles = {
    kubeadm = {
      allow-apiserver  = { priority = 100, protocol = "Tcp", ports = "6443", source = local.everyone, why = "Kubernetes API" }
      allow-kubelet    = { priority = 200, protocol = "Tcp", ports = "10250", source = local.subnet, why = "kubelet API" }
      allow-vxlan      = { priority = 300, protocol = "Udp", ports = "4789", source = local.subnet, why = "VXLAN of Calico, Antrea and others: the registered port" }
      allow-vxlan-8472 = { priority = 400, protocol = "Udp", ports = "8472", source = local.subnet, why = "VXLAN of Flannel and Cilium: Linux' own port" }
    }

    # The six rules of Butler's guide to Azure.
    talos-cilium = {
      allow-apiserver     = { priority = 100, protocol = "Tcp", ports = "6443", source = local.everyone, why = "Kubernetes API, and probes of load balancers" }
      allow-talos         = { priority = 200, protocol = "Tcp", ports = "50000-50001", source = local.subnet, why = "Talos API: apid and trustd" }
      allow-etcd          = { priority = 300, protocol = "Tcp", ports = "2379-2380", source = local.subnet, why = "etcd, clients and peers" }
      allow-kubelet       = { priority = 400, protocol = "Tcp", ports = "10250", source = local.subnet, why = "kubelet API" }
      allow-cilium-health = { priority = 500, protocol = "Tcp", ports = "4240", source = local.subnet, why = "Cilium's health checks" }
      allow-cilium-vxlan  = { priority = 600, protocol = "Udp", ports = "8472", source = local.subnet, why = "Cilium's VXLAN" }
    }

    # The two rules of Cozystack's guide to Azure.
    wireguard-talos = {
      AllowWireGuard = { priority = 100, protocol = "Udp", ports = "51820", source = local.everyone, why = "WireGuard of Kilo" }
      AllowTalosAPI  = { priority = 110, protocol = "Tcp", ports = "50000", source = local.everyone, why = "Talos API" }
    }
  }
}
