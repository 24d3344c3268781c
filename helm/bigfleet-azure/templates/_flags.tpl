{{/* The daemon's arguments. */}}

{{/* A value as a flag takes it: lists and maps with commas, whole numbers without an exponent. */}}
{{- define "bigfleet-azure.text" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s=%v" $key $value) }}{{ end -}}
{{ join "," $pairs }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . }}
{{- else if not (kindIs "invalid" .) -}}
{{ . }}
{{- end -}}
{{- end -}}

{{- define "bigfleet-azure.args" -}}
{{- $values := .Values -}}
{{- $flags := dict
  "addr" (printf ":%d" (int $values.ports.grpc))
  "provider" $values.provider
  "location" $values.location
  "azure-backend" $values.azureBackend
  "create-timeout" $values.timeouts.create
  "configure-timeout" $values.timeouts.configure
  "drain-timeout" $values.timeouts.drain
  "delete-timeout" $values.timeouts.delete
  "create-concurrency" $values.concurrency.create
  "configure-concurrency" $values.concurrency.configure
  "drain-concurrency" $values.concurrency.drain
  "delete-concurrency" $values.concurrency.delete
  "failed-dwell" $values.failedDwell
  "leftovers" $values.leftovers
  "reconcile-interval" $values.reconcileInterval
  "price-refresh" $values.priceRefresh
  "republish-threshold" $values.prices.republishThreshold
  "log-level" $values.log.level
  "log-format" $values.log.format
  "reflection" $values.reflection
-}}
{{- if $values.metrics.enabled -}}
{{- $_ := set $flags "metrics-addr" (printf ":%d" (int $values.ports.metrics)) -}}
{{- end -}}
{{- if include "bigfleet-azure.offerings" . -}}
{{- $_ := set $flags "offerings" "/etc/bigfleet/offerings/offerings.json" -}}
{{- else -}}
{{- $_ := set $flags "seed-count" $values.azure.seedCount -}}
{{- $_ := set $flags "zone-a" $values.azure.zoneA -}}
{{- $_ := set $flags "zone-b" $values.azure.zoneB -}}
{{- end -}}
{{- if $values.state.enabled -}}
{{- $_ := set $flags "state" $values.state.path -}}
{{- if include "bigfleet-azure.stateKeySecret" . -}}
{{- $_ := set $flags "state-key-file" "/etc/bigfleet/state-key/state-key" -}}
{{- end -}}
{{- end -}}
{{- if $values.tls.enabled -}}
{{- $_ := set $flags "tls-cert" "/etc/bigfleet/tls/tls.crt" -}}
{{- $_ := set $flags "tls-key" "/etc/bigfleet/tls/tls.key" -}}
{{- if $values.tls.mtls -}}
{{- $_ := set $flags "tls-ca" "/etc/bigfleet/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- if $values.callback.enabled -}}
{{- $_ := set $flags "callback-addr" (printf ":%d" (int $values.ports.callback)) -}}
{{- $_ := set $flags "callback-url" $values.callback.url -}}
{{- $_ := set $flags "callback-key-file" "/etc/bigfleet/callback-keys/callback-keys" -}}
{{- if $values.callback.tls.secretName -}}
{{- $_ := set $flags "callback-tls-cert" "/etc/bigfleet/callback-tls/tls.crt" -}}
{{- $_ := set $flags "callback-tls-key" "/etc/bigfleet/callback-tls/tls.key" -}}
{{- end -}}
{{- end -}}
{{- if not (include "bigfleet-azure.simulated" .) -}}
{{- $flags = merge $flags (include "bigfleet-azure.azureFlags" . | fromYaml) -}}
{{- end -}}
{{- range $name, $value := $flags -}}
{{- $text := include "bigfleet-azure.text" $value -}}
{{- if ne $text "" }}
- {{ printf "--%s=%s" $name $text | quote }}
{{- end -}}
{{- end -}}
{{- if not $values.metrics.enabled }}
- "--metrics-addr="
{{- end -}}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end -}}
{{- end -}}

{{/* What only real machines need; the simulated region would warn of each. */}}
{{- define "bigfleet-azure.azureFlags" -}}
{{- $azure := .Values.azure -}}
{{- $prices := .Values.prices -}}
{{- $flags := dict
  "subscription-id" $azure.subscriptionId
  "resource-group" $azure.resourceGroup
  "owner-id" $azure.ownerId
  "cloud" $azure.cloud
  "arm-endpoint" $azure.armEndpoint
  "credential" $azure.credential
  "tenant-id" $azure.tenantId
  "client-id" $azure.clientId
  "authority-host" $azure.authorityHost
  "image" $azure.image
  "plan" $azure.plan
  "admin-username" $azure.adminUsername
  "security-type" $azure.securityType
  "azure-zone" $azure.azureZone
  "availability-set-id" $azure.availabilitySetId
  "identity-ids" $azure.identityIds
  "tags" $azure.tags
  "encryption-at-host" $azure.encryptionAtHost
  "boot-diagnostics" $azure.bootDiagnostics
  "subnet-id" $azure.subnetId
  "nsg-id" $azure.nsgId
  "asg-ids" $azure.asgIds
  "lb-backend-pool-ids" $azure.lbBackendPoolIds
  "public-ip" $azure.publicIp
  "ip-forwarding" $azure.ipForwarding
  "accelerated-networking" $azure.acceleratedNetworking
  "os-disk-gib" $azure.osDiskGib
  "os-disk-type" $azure.osDiskType
  "ephemeral-os-disk" $azure.ephemeralOsDisk
  "disk-controller" $azure.diskController
  "disk-encryption-set-id" $azure.diskEncryptionSetId
  "spot-eviction-policy" $azure.spotEvictionPolicy
  "spot-max-price" $azure.spotMaxPrice
  "capacity-reservation-group-id" $azure.capacityReservationGroupId
  "bootstrap-method" $azure.bootstrapMethod
  "bootstrap-hook" $azure.bootstrapHook
  "readiness" $azure.readiness
  "drain-method" $azure.drainMethod
  "cluster-id" $azure.clusterId
  "reserved-cpu" $azure.reservedCpu
  "reserved-memory" $azure.reservedMemory
  "reserved-ephemeral-storage" $azure.reservedEphemeralStorage
  "max-pods" $azure.maxPods
  "prices-endpoint" $prices.endpoint
  "price-discount" $prices.discount
  "reserved-term" $prices.reservedTerm
  "eviction-rate-basis" $prices.evictionRateBasis
-}}
{{- if $azure.sshPublicKey -}}
{{- $_ := set $flags "ssh-public-key" "/etc/bigfleet/files/ssh-public-key.pub" -}}
{{- end -}}
{{- if $azure.armCa -}}
{{- $_ := set $flags "arm-ca" "/etc/bigfleet/files/arm-ca.pem" -}}
{{- end -}}
{{- if include "bigfleet-azure.userData" . -}}
{{- $_ := set $flags "base-user-data" "/etc/bigfleet/user-data/base-user-data" -}}
{{- end -}}
{{- if include "bigfleet-azure.prices" . -}}
{{- $_ := set $flags "price-file" "/etc/bigfleet/prices/prices.json" -}}
{{- end -}}
{{- if .Values.kubeconfigs.existingSecret -}}
{{- $_ := set $flags "kubeconfig-dir" "/etc/bigfleet/kubeconfigs" -}}
{{- end -}}
{{- $texts := dict -}}
{{- range $name, $value := $flags -}}
{{- $_ := set $texts $name (include "bigfleet-azure.text" $value) -}}
{{- end -}}
{{ toYaml $texts }}
{{- end -}}
