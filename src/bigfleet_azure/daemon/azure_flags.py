"""The table of the Azure backend's options; what they come to is `azure`'s.

None of them matters to the simulated region. A value that may stand in the environment for other
programs' sake is read as plain text here, and judged only when this backend is chosen.
"""

from bigfleet_azure.daemon import azure_values, values
from bigfleet_azure.daemon.option import Option

_ACCOUNT = "Azure: account"
_CREDENTIALS = "Azure: credentials"
_MACHINES = "Azure: virtual machines"
_NETWORK = "Azure: network"
_DISKS = "Azure: disks"
_PRICE = "Azure: Spot and reserved capacity"
_GUEST = "Azure: bootstrap, readiness and drain"
_NODES = "Azure: what a node keeps for itself"

_BYTES = 1
_MILLICORES = 1000

AZURE_OPTIONS: tuple[Option, ...] = (
    Option(
        name="subscription-id",
        parse=values.text,
        default="",
        metavar="ID",
        group=_ACCOUNT,
        env_aliases=("AZURE_SUBSCRIPTION_ID",),
        help="Subscription that machines are made in. Required.",
    ),
    Option(
        name="resource-group",
        parse=azure_values.resource_group,
        default="",
        metavar="NAME",
        group=_ACCOUNT,
        help="Resource group that machines are made in; it must exist. Required.",
    ),
    Option(
        name="owner-id",
        parse=azure_values.owner,
        default="",
        metavar="NAME",
        group=_ACCOUNT,
        derived="<provider>/<location>",
        help="Value of the tag bigfleet-owner, which says whose a machine is: what carries another "
        "one is never touched. It must differ between daemons that share a group and a location, "
        "and must never change while machines exist.",
    ),
    Option(
        name="cloud",
        parse=values.choice("public", "usgov", "china"),
        default="public",
        metavar="public|usgov|china",
        group=_ACCOUNT,
        help="Which of Microsoft's clouds the subscription is in.",
    ),
    Option(
        name="arm-endpoint",
        parse=azure_values.https_url,
        default="",
        metavar="URL",
        group=_ACCOUNT,
        derived="the cloud's",
        help="Address of Azure Resource Manager, for private endpoints and tests.",
    ),
    Option(
        name="arm-ca",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_ACCOUNT,
        help="CA bundle (PEM) that Azure's certificates come from, in place of the system's.",
    ),
    Option(
        name="credential",
        parse=values.choice(
            "auto", "workload-identity", "managed-identity", "service-principal", "cli"
        ),
        default="auto",
        metavar="METHOD",
        group=_CREDENTIALS,
        help="Who the daemon is to Azure: workload-identity, managed-identity, service-principal, "
        "cli or auto. auto takes a federated token file, else a client secret, else a managed "
        "identity; never cli, whose login ends.",
    ),
    Option(
        name="tenant-id",
        parse=values.text,
        default="",
        metavar="ID",
        group=_CREDENTIALS,
        env_aliases=("AZURE_TENANT_ID",),
        help="Tenant of the identity.",
    ),
    Option(
        name="client-id",
        parse=values.text,
        default="",
        metavar="ID",
        group=_CREDENTIALS,
        env_aliases=("AZURE_CLIENT_ID",),
        help="Application id of the identity; for managed-identity only where there are several.",
    ),
    Option(
        name="client-secret",
        parse=values.secret,
        default="",
        secret=True,
        env_only=True,
        group=_CREDENTIALS,
        env_aliases=("AZURE_CLIENT_SECRET",),
        help="Secret of a service principal. Only from the environment: "
        "a command line can be read by every user of the machine.",
    ),
    Option(
        name="federated-token-file",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_CREDENTIALS,
        env_aliases=("AZURE_FEDERATED_TOKEN_FILE",),
        help="Token that workload identity trades in; read again whenever it is needed.",
    ),
    Option(
        name="authority-host",
        parse=values.text,
        default="",
        metavar="URL",
        group=_CREDENTIALS,
        env_aliases=("AZURE_AUTHORITY_HOST",),
        derived="the cloud's",
        help="Address of the token service.",
    ),
    Option(
        name="image",
        parse=values.text,
        default="Canonical:ubuntu-24_04-lts:server:latest",
        metavar="IMAGE",
        group=_MACHINES,
        help="Marketplace image as publisher:offer:sku:version, or the full id of a managed image, "
        "of a compute-gallery image or of one of its versions.",
    ),
    Option(
        name="plan",
        parse=values.text,
        default="",
        metavar="PLAN",
        group=_MACHINES,
        help="Marketplace plan that the image needs, as publisher:product:name; its terms must "
        "have been accepted.",
    ),
    Option(
        name="admin-username",
        parse=azure_values.admin_username,
        default="bigfleet",
        metavar="NAME",
        group=_MACHINES,
        help="User that the SSH key lets in.",
    ),
    Option(
        name="ssh-public-key",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_MACHINES,
        help="Public key, ssh-rsa or ssh-ed25519. Without one nobody can log in: Azure wants a "
        "key, and is given one whose private half is thrown away.",
    ),
    Option(
        name="base-user-data",
        parse=values.path,
        default="",
        metavar="FILE",
        group=_MACHINES,
        help="Becomes the VM's customData byte for byte: cloud-init for any cluster, or the whole "
        "machine configuration of an image that reads nothing else. At most 65,535 bytes.",
    ),
    Option(
        name="security-type",
        parse=values.choice(*azure_values.SECURITY_TYPES),
        default="Standard",
        metavar="|".join(azure_values.SECURITY_TYPES),
        group=_MACHINES,
        help="Security type that is asked for, and checked in Azure's answer.",
    ),
    Option(
        name="azure-zone",
        parse=values.choice(*azure_values.AZURE_ZONES, **{"": ""}),
        default="",
        metavar="|".join(azure_values.AZURE_ZONES),
        group=_MACHINES,
        derived="the number at the end of the published zone",
        help="Azure's zone of the machines, whatever the published zone is called; none makes "
        "regional VMs.",
    ),
    Option(
        name="availability-set-id",
        parse=azure_values.arm_id("availability-set"),
        default="",
        metavar="ID",
        group=_MACHINES,
        help="Availability set of the machines. They then need --azure-zone none, and cannot be "
        "Spot.",
    ),
    Option(
        name="identity-ids",
        parse=azure_values.arm_ids("identity"),
        default="",
        metavar="ID,...",
        group=_MACHINES,
        help="User-assigned identities that the machines get.",
    ),
    Option(
        name="tags",
        parse=azure_values.tags,
        default="",
        metavar="KEY=VALUE,...",
        group=_MACHINES,
        help="Further tags of VM, interface and public IP address. '/' in a key becomes '_'.",
    ),
    Option(
        name="encryption-at-host",
        parse=values.boolean,
        default="false",
        group=_MACHINES,
        help="Encrypt temporary disks and caches on the host.",
    ),
    Option(
        name="boot-diagnostics",
        parse=values.boolean,
        default="true",
        group=_MACHINES,
        help="Managed boot diagnostics: the only evidence of a machine that never reports.",
    ),
    Option(
        name="subnet-id",
        parse=azure_values.arm_id("subnet"),
        default="",
        metavar="ID",
        group=_NETWORK,
        help="Subnet of the machines; it may lie in another resource group. Required.",
    ),
    Option(
        name="nsg-id",
        parse=azure_values.arm_id("nsg"),
        default="",
        metavar="ID",
        group=_NETWORK,
        help="Network security group of the machines' interfaces.",
    ),
    Option(
        name="asg-ids",
        parse=azure_values.arm_ids("asg"),
        default="",
        metavar="ID,...",
        group=_NETWORK,
        help="Application security groups that the machines join.",
    ),
    Option(
        name="lb-backend-pool-ids",
        parse=azure_values.arm_ids("lb-pool"),
        default="",
        metavar="ID,...",
        group=_NETWORK,
        help="Load balancers' backend pools that the machines join.",
    ),
    Option(
        name="public-ip",
        parse=values.boolean,
        default="false",
        group=_NETWORK,
        help="Give each machine a Standard, static public IP address.",
    ),
    Option(
        name="ip-forwarding",
        parse=values.boolean,
        default="false",
        group=_NETWORK,
        help="Let the machines' interfaces forward packets for others.",
    ),
    Option(
        name="accelerated-networking",
        parse=values.choice(*azure_values.SWITCHES),
        default="auto",
        metavar="|".join(azure_values.SWITCHES),
        group=_NETWORK,
        help="Accelerated networking; auto uses it where the size can.",
    ),
    Option(
        name="os-disk-gib",
        parse=values.whole(least=0, most=azure_values.MAX_OS_DISK_GIB),
        default="0",
        metavar="N",
        group=_DISKS,
        help="Size of the OS disk in GiB; 0 = the image's.",
    ),
    Option(
        name="os-disk-type",
        parse=values.choice(*azure_values.OS_DISK_TYPES),
        default="auto",
        metavar="TYPE",
        group=_DISKS,
        help="Storage of the OS disk: Premium_LRS, StandardSSD_LRS, Standard_LRS, Premium_ZRS, "
        "StandardSSD_ZRS or auto, which is Premium_LRS where the size takes it, else "
        "StandardSSD_LRS.",
    ),
    Option(
        name="ephemeral-os-disk",
        parse=values.choice(*azure_values.SWITCHES),
        default="off",
        metavar="|".join(azure_values.SWITCHES),
        group=_DISKS,
        help="Keep the OS disk on the host: auto where it fits; with on, offerings where it does "
        "not fit are withheld.",
    ),
    Option(
        name="disk-controller",
        parse=values.choice(*azure_values.DISK_CONTROLLERS),
        default="auto",
        metavar="|".join(azure_values.DISK_CONTROLLERS),
        group=_DISKS,
        help="Disk controller; auto takes what size and image both can.",
    ),
    Option(
        name="disk-encryption-set-id",
        parse=azure_values.arm_id("disk-encryption-set"),
        default="",
        metavar="ID",
        group=_DISKS,
        help="Disk encryption set with the customer's key for the OS disk.",
    ),
    Option(
        name="spot-eviction-policy",
        parse=values.choice(*azure_values.EVICTION_POLICIES),
        default="Delete",
        metavar="|".join(azure_values.EVICTION_POLICIES),
        group=_PRICE,
        help="What Azure does with a Spot machine that it evicts. Either way it is lost, and the "
        "daemon deletes what is left.",
    ),
    Option(
        name="spot-max-price",
        parse=azure_values.max_price,
        default="-1",
        metavar="USD",
        group=_PRICE,
        help="Most that a Spot machine may cost an hour; -1 = up to the on-demand price.",
    ),
    Option(
        name="capacity-reservation-group-id",
        parse=azure_values.arm_id("reservation"),
        default="",
        metavar="ID",
        group=_PRICE,
        help="Capacity reservation group that reserved machines are placed in.",
    ),
    Option(
        name="bootstrap-method",
        parse=values.choice("extension", "none"),
        default="extension",
        metavar="extension|none",
        group=_GUEST,
        help="How a machine gets its bootstrap blob: extension runs the hook of the image; none is "
        "for images that join from their user data (Talos), one cluster for a daemon.",
    ),
    Option(
        name="bootstrap-hook",
        parse=azure_values.hook,
        default="/opt/bigfleet/bootstrap",
        metavar="PATH",
        group=_GUEST,
        help="Program in the image that applies the bootstrap blob.",
    ),
    Option(
        name="readiness",
        parse=values.choice("hook", "kubernetes"),
        default="hook",
        metavar="hook|kubernetes",
        group=_GUEST,
        help="Who says that a machine has joined: its hook, or the Node that becomes Ready.",
    ),
    Option(
        name="drain-method",
        parse=values.choice("hook", "kubernetes"),
        default="hook",
        metavar="hook|kubernetes",
        group=_GUEST,
        help="Who drains a machine: its hook, or the daemon by evictions.",
    ),
    Option(
        name="kubeconfig-dir",
        parse=values.path,
        default="",
        metavar="DIRECTORY",
        group=_GUEST,
        help="Holds a kubeconfig for each cluster, named as the cluster; needed for kubernetes.",
    ),
    Option(
        name="cluster-id",
        parse=azure_values.cluster,
        default="",
        metavar="NAME",
        group=_GUEST,
        help="The one cluster of --bootstrap-method none.",
    ),
    Option(
        name="reserved-cpu",
        parse=azure_values.quantity_of(_MILLICORES, "100m"),
        default="",
        metavar="QUANTITY",
        group=_NODES,
        derived="6 % of the first core, 1 % of the second, less of further ones",
        help="CPU that kubelet and system keep; the rest is published as allocatable.",
    ),
    Option(
        name="reserved-memory",
        parse=azure_values.quantity_of(_BYTES, "1Gi"),
        default="",
        metavar="QUANTITY",
        group=_NODES,
        derived="25 % of the first 4 GiB, less of further ones, and 100Mi",
        help="Memory that kubelet, system and eviction keep.",
    ),
    Option(
        name="reserved-ephemeral-storage",
        parse=azure_values.quantity_of(_BYTES, "10Gi"),
        default="",
        metavar="QUANTITY",
        group=_NODES,
        derived="15 % of the OS disk",
        help="What of the OS disk is not for workloads.",
    ),
    Option(
        name="max-pods",
        parse=values.whole(least=1, most=1000),
        default="110",
        metavar="N",
        group=_NODES,
        help="Most pods on a node, as its kubelet is set.",
    ),
)
