{{/* Everything that is wrong between values that are right alone, told at once. */}}

{{- define "bigfleet-azure.checks" -}}
{{- $values := .Values -}}
{{- $faults := list -}}
{{- if not (include "bigfleet-azure.simulated" .) -}}
{{- if not $values.location -}}
{{- $faults = append $faults "location is missing: name the Azure region that this release serves, for instance --set location=eastus, or set azureBackend=fake for the simulated region" -}}
{{- end -}}
{{- range $key, $meaning := dict
  "subscriptionId" "the subscription that machines are made in"
  "resourceGroup" "the resource group that machines are made in"
  "subnetId" "the full id of the machines' subnet" -}}
{{- if not (get $values.azure $key) -}}
{{- $faults = append $faults (printf "azure.%s is missing: give %s, or set azureBackend=fake for the simulated region" $key $meaning) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $both := list
  (list "offerings.content" $values.offerings.content "offerings.existingConfigMap" $values.offerings.existingConfigMap)
  (list "prices.content" $values.prices.content "prices.existingConfigMap" $values.prices.existingConfigMap)
  (list "baseUserData.content" $values.baseUserData.content "baseUserData.existingSecret" $values.baseUserData.existingSecret)
  (list "evictionToken" $values.evictionToken "evictionTokenSecret.existingSecret" $values.evictionTokenSecret.existingSecret) -}}
{{- if and (index $both 1) (index $both 3) -}}
{{- $faults = append $faults (printf "%s and %s are both given: keep one of them" (index $both 0) (index $both 2)) -}}
{{- end -}}
{{- end -}}
{{- if and $values.offerings.content (not (kindIs "slice" (printf "{\"it\": %s}" $values.offerings.content | fromJson).it)) -}}
{{- $faults = append $faults "offerings.content is not a JSON array: give the offerings file, for instance --set-file offerings.content=offerings.json" -}}
{{- end -}}
{{- if and $values.tls.mtls (not $values.tls.enabled) -}}
{{- $faults = append $faults "tls.mtls has no effect without TLS: set tls.enabled=true as well" -}}
{{- end -}}
{{- if and $values.tls.certManager.enabled (not $values.tls.enabled) -}}
{{- $faults = append $faults "tls.certManager.enabled has no effect without TLS: set tls.enabled=true as well" -}}
{{- end -}}
{{- if and $values.tls.enabled (not $values.tls.secretName) (not $values.tls.certManager.enabled) -}}
{{- $faults = append $faults "tls.enabled needs a certificate: name a TLS Secret in tls.secretName, or set tls.certManager.enabled=true" -}}
{{- end -}}
{{- if and $values.tls.certManager.enabled (not $values.tls.certManager.issuerRef.name) -}}
{{- $faults = append $faults "tls.certManager.issuerRef.name is missing: name the Issuer that signs the certificate" -}}
{{- end -}}
{{- if and $values.callback.enabled (not $values.callback.url) -}}
{{- $faults = append $faults "callback.url is missing: give the address at which machines reach the callback port, such as https://bigfleet.example.com:9443" -}}
{{- end -}}
{{- if and (eq $values.probes.type "grpc") $values.tls.enabled -}}
{{- $faults = append $faults "probes.type=grpc cannot work with tls.enabled, since the kubelet's gRPC probes speak no TLS: use http" -}}
{{- end -}}
{{- if and (eq $values.probes.type "http") (not $values.metrics.enabled) -}}
{{- $faults = append $faults "probes.type=http needs the metrics listener: leave metrics.enabled on, or use grpc or none" -}}
{{- end -}}
{{- $ports := list (int $values.ports.grpc) -}}
{{- if $values.metrics.enabled }}{{ $ports = append $ports (int $values.ports.metrics) }}{{ end -}}
{{- if $values.callback.enabled }}{{ $ports = append $ports (int $values.ports.callback) }}{{ end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- $faults = append $faults "two of the ports under ports are the same: give each its own" -}}
{{- end -}}
{{- if $faults -}}
{{- fail (printf "\n\n  %s.\n" (join ".\n  " $faults)) -}}
{{- end -}}
{{- end -}}
